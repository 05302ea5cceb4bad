"""The ledger's file: who used how much of which device, hour by hour, and each holding with its end.

The sink `ledger` writes it; `podgpu usage` and the status page read it. See docs/sinks/ledger.md.
"""
