"""The machine and podgpu's own process: procfs, cgroups, sockets, shared libraries, threads."""
