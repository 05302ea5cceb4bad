"""`podgpu topology`: show the topology of the GPUs and their holders, and choose the best GPUs."""
