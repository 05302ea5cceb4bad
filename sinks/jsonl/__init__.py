"""The sink `jsonl`: writes JSON lines to a file or to standard output.

The lines are readings, ended holdings, XID errors and podgpu's own metrics.
"""
