"""Checks and helpers of `podgpu doctor` that several components use."""
