"""Reads XID errors from the kernel's log, with the processes that it names.

`source` is the component; `kmsg_device` opens and reads `/dev/kmsg`, `log_records` understands its
lines, `log_timestamps` says when they were written, `process_owners` finds out whose a process is.
"""
