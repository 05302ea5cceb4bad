"""A soak test: one podgpu, and faults at random times. It needs no Kubernetes."""
