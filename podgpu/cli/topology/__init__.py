"""`podgpu topology`: show the topology of the GPUs and their holders, and choose the best GPUs.

`command` runs the command. It queries a daemon with `podgpu.cli.daemon_client`. Without a daemon,
`local_topology` reads this machine's driver or a recording.
"""
