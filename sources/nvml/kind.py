"""What the nvml source declares about itself."""

from typing import Final

from pipeline.base.telemetry import Family
from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="samples this node's NVIDIA GPUs through the driver's library (NVML)",
    options="sources.nvml.options:Options",
    factory="sources.nvml.source:NvmlSource",
    uses_plan=True,
    doctor="sources.nvml.doctor:examine",
    families=(
        Family(
            "podgpu_sample_duration_seconds",
            "Duration of a round of readings, from the first call to the last.",
            summary=True,
        ),
        Family(
            "podgpu_samples_skipped_total",
            "Rounds of readings that were skipped because the previous one had not ended.",
        ),
    ),
    timeout_fix="the driver does not respond: see the kernel log (dmesg), and reboot the node "
    "if this persists; or check the file system of the driver's library",
    resolves=frozenset({"devices"}),
)
