"""The declaration of the source `pods`."""

from typing import Final

from pipeline.component.kind import SILENT_SERVER, Kind

KIND: Final = Kind(
    summary="watches this node's pods through the API server, and the GPUs that schedulers assign",
    options="sources.pods.options:Options",
    factory="sources.pods.source:PodsSource",
    doctor="sources.pods.doctor:examine",
    timeout_fix=SILENT_SERVER,
    holders="some",
    resolves=frozenset({"names"}),
)
