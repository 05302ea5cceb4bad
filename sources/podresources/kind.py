"""The declaration of the source `podresources`."""

from typing import Final

from pipeline.base.telemetry import Family
from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="asks the kubelet which container holds which GPU, on its pod-resources socket",
    options="sources.podresources.options:Options",
    factory="sources.podresources.source:PodResourcesSource",
    doctor="sources.podresources.doctor:examine",
    families=(
        Family(
            "podgpu_source_requests_total",
            "Requests that the source has sent, by method and result.",
        ),
    ),
    timeout_fix="check that the kubelet responds, and its log (journalctl -u kubelet)",
    holders="all",
    resolves=frozenset({"claims"}),
)
