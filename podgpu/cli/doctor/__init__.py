"""`podgpu doctor`: check a node or a cluster for problems, and print how to fix them."""
