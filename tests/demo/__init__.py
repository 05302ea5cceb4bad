"""How the recording of `podgpu demo` is made: simulated scenes, and the merge with real ones."""
