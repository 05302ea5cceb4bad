"""The nvml source: samples the GPUs of this machine through NVML, the library of the driver.

`source` is the component and runs on the event loop; `sampler` is one run of it. `worker_pool`
calls NVML on threads that may hang, and `sampling_jobs` defines which calls belong to one round.
`inventory`, `gpu` and `mig_instances` hold the devices; `read_plan` and `readers` turn the field
catalogue into bound calls. `xid_watch` waits for XID errors on a thread, `xid_counts` counts them
and `xid_reports` adds where they occurred. For usage, `process_sampler` schedules the samples,
`usage_sample` and `process_utilization` take them, `process_owners` and `owner_thread` find the
containers of the processes, and `sample_owners` combines the two. `state` outlives the component.
Only `library` imports pynvml.
"""
