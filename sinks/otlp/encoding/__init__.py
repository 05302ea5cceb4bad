"""Encode snapshots as OTLP requests. Pure: no I/O, no tasks, no clock."""
