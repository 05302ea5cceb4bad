"""The ledger's file: who used how much of which device, by the hour, and each holding with its end.

The sink `ledger` writes it; `podgpu usage` and the status page read it: docs/sinks/ledger.md.
"""
