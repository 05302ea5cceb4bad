"""The declaration of the source `checkpoint`."""

from typing import Final

from pipeline.component.kind import HANGING_FILE, Kind

KIND: Final = Kind(
    summary="reads which container holds which GPU from the kubelet's device plugin checkpoint",
    options="sources.checkpoint.options:Options",
    factory="sources.checkpoint.source:CheckpointSource",
    doctor="sources.checkpoint.doctor:examine",
    timeout_fix=HANGING_FILE,
    holders="all",
    resolves=frozenset({"claims"}),
)
