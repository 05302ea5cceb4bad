"""Checks and probes of `podgpu doctor` that more than one component uses."""
