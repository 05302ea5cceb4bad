"""`podgpu extender`: a scheduler extender for the whole cluster."""
