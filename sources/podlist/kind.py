"""The declaration of the source `podlist`."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="reads which container holds which GPU from koordinator's podlist.json",
    options="sources.podlist.options:Options",
    factory="sources.podlist.source:PodListSource",
    doctor="sources.podlist.doctor:examine",
    timeout_fix=HANGING_FILE,
    holders="all",
)
