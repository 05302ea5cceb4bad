"""`podgpu doctor`: checks a node or a cluster and reports problems with their fixes.

It only reads and queries, and changes nothing; `pipeline.diagnostics.context` has what a check may
use. The table of all checks is `pipeline.diagnostics.check_table.CHECKS`, which
`docs/troubleshooting.md` shows.
"""
