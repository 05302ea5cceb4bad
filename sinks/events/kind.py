"""What the events sink declares about itself."""

from typing import Final

from pipeline.component.kind import SILENT_SERVER, Kind

KIND: Final = Kind(
    summary="writes a Kubernetes Event for each pod affected by an XID error, "
    "through the API server",
    options="sinks.events.options:Options",
    factory="sinks.events.sink:EventsSink",
    doctor="sinks.events.doctor:examine",
    timeout_fix=SILENT_SERVER,
)
