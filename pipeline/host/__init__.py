"""This machine and this process: /proc, cgroups, sockets, shared libraries, threads."""
