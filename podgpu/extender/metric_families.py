"""The extender's own metrics."""

from typing import Final

from pipeline.base.telemetry import Family

EXTENDER_FAMILIES: Final = (
    Family(
        "podgpu_extender_up",
        "gauge",
        "1 while the extender watches the cluster's Nodes, 0 while it answers from the last known "
        "state.",
    ),
    Family(
        "podgpu_extender_nodes",
        "gauge",
        "Nodes that the extender knows, by what they report of their topology.",
    ),
    Family(
        "podgpu_extender_requests_total",
        "counter",
        "Requests of the scheduler, by verb and result.",
    ),
    Family(
        "podgpu_extender_request_duration_seconds",
        "summary",
        "Time in which the extender answered a request of the scheduler.",
    ),
)
