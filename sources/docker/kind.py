"""What the docker source declares about itself."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="follows the containers of Docker or Podman, and the GPUs that they were given",
    options="sources.docker.options:Options",
    factory="sources.docker.source:DockerSource",
    doctor="sources.docker.doctor:examine",
    timeout_fix="check that docker ps, or podman ps, responds",
    holders="all",
    resolves=frozenset({"owners"}),
)
