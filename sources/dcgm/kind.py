"""What the dcgm source declares about itself."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="reads the metrics page of a dcgm-exporter on this node, of any version",
    options="sources.dcgm.options:Options",
    factory="sources.dcgm.source:DcgmSource",
    uses_plan=True,
    doctor="sources.dcgm.doctor:examine",
    timeout_fix="check that dcgm-exporter responds at url, or the file system of path",
    resolves=frozenset({"devices"}),
)
