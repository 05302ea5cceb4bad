"""The source `pods`: watches this node's pods, and reads the devices that schedulers gave them."""
