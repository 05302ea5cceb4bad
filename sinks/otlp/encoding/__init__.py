"""Snapshots turned into OTLP requests. Pure: no I/O, no tasks, no clock."""
