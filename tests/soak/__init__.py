"""A podgpu on its own, and what goes wrong at random moments. Needs no Kubernetes."""
