"""Queued delivery for sinks that send data to a receiver.

A `PushSink` encodes snapshots and sends records. `QueuedSink` adds a queue to it: records
go through a queue, on disk if that is configured, and are sent again until the receiver accepts or
rejects them. Every point is counted: produced + recovered = acked + rejected + dropped + queued.
"""
