"""A Kubernetes cluster of one node on loopback, with the real programs.

containerd and runc run the containers, a kubelet allocates devices and serves pod-resources, etcd
and an API server store the objects, and a scheduler allocates claims. Only the vendor's parts are
simulated, and tests control them: a device plugin and a DRA driver.
"""
