"""What the nri source declares about itself."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="receives the events of containers from the container runtime, as an NRI plugin",
    options="sources.nri.options:Options",
    factory="sources.nri.source:NriSource",
    doctor="sources.nri.doctor:examine",
    timeout_fix=HANGING_FILE,
    holders="all",
)
