"""The nvml source: samples the GPUs of this machine through NVML, the library of the driver.

`source` is the component and runs on the event loop; `reading_sampler` is one run of it.
`worker_pool` calls NVML on threads that may hang. `inventory` defines which calls belong to one
round; it holds the devices, with `open_gpu` and `mig_instances`. `reader_parts`, `read_plan` and
`composite_readers` turn the field catalogue into bound calls. `xid_watch` waits for XID errors on a
thread, and `event_counts` counts them. For usage, `usage_scheduler` schedules the samples,
`gpu_usage_sampler` and `process_utilization` take them, `process_owners` finds the containers of
the processes, and `sample_owners` adds the containers to the samples. `restart_state` holds the
state that outlives the component. Only `library` imports pynvml.
"""
