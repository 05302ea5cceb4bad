"""A scheduler extender: tells kube-scheduler which nodes have the GPUs that a pod wants.

`judging` is pure: what a pod asks for, which nodes fit, and how well. `nodes` follows what the
cluster's Nodes say of their topology, `question` reads and writes what the scheduler sends and
gets, `service` puts the two together, `running` is the process.
"""
