"""Hears of containers from the container runtime itself, as a plugin of its NRI."""
