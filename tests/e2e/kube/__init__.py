"""A Kubernetes of one node, on loopback, made of the real programs.

containerd and runc run the containers, a kubelet hands out devices and serves pod-resources, etcd
and an API server hold the objects, a scheduler allocates claims. Only what a vendor brings is our
own, and it is what a test wants to steer: a device plugin and a DRA driver, both without hardware.
"""
