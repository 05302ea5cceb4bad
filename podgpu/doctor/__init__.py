"""`podgpu doctor`: checks a node or a cluster, and reports problems with their fixes.

It changes nothing, except that it writes a file into each queue folder and removes it.
`pipeline.diagnostics.context` has what a check may use. `docs/troubleshooting.md` lists all checks.
"""
