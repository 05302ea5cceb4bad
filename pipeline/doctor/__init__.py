"""`podgpu doctor`: looks at a node or a cluster and says in plain words what is wrong.

It reads and asks, and changes nothing: see `pipeline.doctor.context` for what a check may use. The
table of all checks is `pipeline.doctor.checks.CHECKS`, which `docs/troubleshooting.md` shows.
"""
