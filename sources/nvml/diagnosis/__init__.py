"""The checks of `podgpu doctor` for driver, library and GPUs. All functions block."""
