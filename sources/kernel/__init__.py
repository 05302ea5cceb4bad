"""The kernel source: reads XID errors from the kernel log, with the processes that it names.

`source` is the component. `kmsg_device` opens and reads `/dev/kmsg`, `log_records` parses its
lines, `log_timestamps` calculates when they were written, and `process_owners` finds the containers
of processes.
"""
