"""`podgpu doctor`: looks at a node or a cluster and says in plain words what is wrong.

It reads and asks, and changes nothing: see `pipeline.diagnostics.context` for what a check may use.
The table of all checks is `pipeline.diagnostics.check_table.CHECKS`, which
`docs/troubleshooting.md` shows.
"""
