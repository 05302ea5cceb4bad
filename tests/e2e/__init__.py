"""podgpu against programs that are not podgpu's: `make e2e`."""
