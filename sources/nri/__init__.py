"""The source `nri`: reports containers as a plugin of the container runtime's NRI."""
