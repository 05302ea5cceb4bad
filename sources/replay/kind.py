"""The declaration of the source `replay`."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="plays a recording of a node's events",
    options="sources.replay.options:Options",
    factory="sources.replay.source:ReplaySource",
    doctor="sources.replay.doctor:examine",
    timeout_fix=HANGING_FILE,
    holders="relayed",
)
