"""`podgpu doctor`: what is wrong on this node, or in a cluster, and what mends it."""
