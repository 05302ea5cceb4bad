"""The source `docker`: containers of Docker and Podman, and the GPUs that they were given."""
