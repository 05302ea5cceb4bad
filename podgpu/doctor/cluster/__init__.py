"""`podgpu doctor --cluster`: objects are fetched once, and looked at by pure functions."""
