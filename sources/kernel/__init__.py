"""Reads XID errors from the kernel's log, with the processes that it names.

`source` is the component; `device` opens and reads `/dev/kmsg`, `records` understands its lines,
`moments` says when they were written, `processes` finds out whose a process is.
"""
