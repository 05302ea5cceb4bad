"""Samples this machine's NVIDIA GPUs through NVML, the driver's own library.

`source` is the component and lives on the event loop. `worker_pool` runs the calls on threads that
may get stuck; `sampling_jobs` says which calls belong to one round; `inventory`, `gpu` and
`mig_instances` know the devices; `read_plan` and `readers` turn the field catalogue into bound
calls; `xid_watch` waits for XID errors on a thread of its own, `xid_counts` counts them and
`xid_reports` says where they struck. `process_sampler` says when it is looked who uses the devices,
`usage_sample` and `process_utilization` do that, `process_owners` and `owner_thread` find out whose
the processes are, `sample_owners` puts it together. `state` is what outlives the component.
`library` alone imports pynvml.
"""
