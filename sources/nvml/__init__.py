"""Samples this machine's NVIDIA GPUs through NVML, the driver's own library.

`source` is the component and lives on the event loop. `crew` runs the calls on threads that may get
stuck; `rounds` says which calls belong to one round; `inventory`, `gpu` and `mig` know the devices;
`plan` and `readers` turn the field catalogue into bound calls; `watch` waits for XID errors on a
thread of its own, `xids` counts them and `reports` says where they struck. `looking` says when it
is looked who uses the devices, `looks` and `utilization` do that, `procfs` and `owners` find out
whose the processes are, `owning` puts it together. `kept` is what outlives the component.
`library` alone imports pynvml.
"""
