"""`podgpu topology`: how the GPUs are joined, who holds them, and which to take.

`command` is the command; a running daemon is asked by `pipeline.cli.asking`, and without one
`knowing` finds out from this machine's driver or from a recording.
"""
