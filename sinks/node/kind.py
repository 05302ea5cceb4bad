"""What the node sink declares about itself."""

from typing import Final

from pipeline.component.kind import SILENT_SERVER, Kind

KIND: Final = Kind(
    summary="writes the node's GPU topology and its free GPUs to an annotation of the Node",
    options="sinks.node.options:Options",
    factory="sinks.node.sink:NodeSink",
    doctor="sinks.node.doctor:examine",
    timeout_fix=SILENT_SERVER,
)
