"""`podgpu demo`: play the built-in recording, with a ledger of sample data.

`command` runs the daemon. `ledger_place` finds the place of the ledger and starts a child process,
`__main__`, in which `ledger_file` writes it. `workloads` is the table of the sample data,
`schedule` turns it into stays of containers on devices, and `sample_usage` into usage.
`recorded_node` reads the devices and pods of the recording.
"""
