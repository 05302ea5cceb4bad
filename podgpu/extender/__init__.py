"""A scheduler extender: tells kube-scheduler which nodes have the GPUs that a pod wants.

`node_selection` is pure: what a pod asks for, which nodes fit, and how well. `node_cache` follows
what the cluster's Nodes say of their topology, `scheduler_messages` reads and writes what the
scheduler sends and gets, `service` puts the two together, `server` is the process.
"""
