"""A scheduler extender: filters and scores nodes for kube-scheduler by their free GPUs.

`node_selection` is pure: what a pod requests, which nodes fit, and how well. `node_cache` watches
the topology annotations of the Nodes. `scheduler_messages` parses requests of the scheduler and
makes responses. `service` handles requests, and `server` is the process.
"""
