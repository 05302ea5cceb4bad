"""A podgpu of its own, and much that goes wrong at moments of chance. Run by itself; needs no node."""
