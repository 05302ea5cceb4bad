"""The kernel source: reads XID errors from the kernel log, with the processes that it names.

`source` is the component. `kmsg_device` opens and reads `/dev/kmsg`, `log_follower` follows it and
calculates when its records were written, `log_records` parses its lines, and `process_owners` finds
the containers of processes.
"""
