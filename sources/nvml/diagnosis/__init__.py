"""The parts of what `podgpu doctor` finds out about driver, library and GPUs. All of it blocks."""
