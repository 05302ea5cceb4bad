"""The ledger: an SQLite file with usage per hour, device and container, and with all holdings.

The sink `ledger` writes the file; `podgpu usage` and the status page read it. See
docs/sinks/ledger.md.
"""
