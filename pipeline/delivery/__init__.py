"""Delivery that loses nothing: what sinks that send have in common.

A `PushSink` makes records of snapshots and sends them. `Delivering` makes a sink of it: records go
through a queue, on the disk if that is configured, and are sent again until the receiver has taken
or refused them. Every point is accounted for: produced + recovered = acked + rejected + dropped +
queued.
"""
