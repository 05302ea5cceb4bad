"""What the prometheus sink declares about itself."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="serves /metrics for Prometheus, with the names of dcgm-exporter",
    options="sinks.prometheus.options:Options",
    factory="sinks.prometheus.sink:PrometheusSink",
    uses_plan=True,
)
