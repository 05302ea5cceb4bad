"""`podgpu doctor`: checks a node or a cluster and reports problems with their fixes.

It only reads and queries, and changes nothing; `pipeline.diagnostics.context` has what a check may
use. `docs/troubleshooting.md` lists all checks.
"""
