"""What the pods sink declares about itself."""

from typing import Final

from pipeline.component.kind import SILENT_SERVER, Kind

KIND: Final = Kind(
    summary="writes the UUIDs of the GPUs that a pod holds to its annotations, "
    "through the API server",
    options="sinks.pods.options:Options",
    factory="sinks.pods.sink:PodsSink",
    doctor="sinks.pods.doctor:examine",
    timeout_fix=SILENT_SERVER,
)
