"""The OTLP signals that podgpu sends: metrics and log records."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Signal:
    """An OTLP signal (specification 1.11).

    Attributes:
        number: of its records in a queue; it is stored, so it never changes.
        name: name for messages.
        variable: its part of the names of environment variables.
        path: path over HTTP, without a leading `/`.
        method: gRPC method.
        points: what its messages contain.
    """

    number: int
    name: str
    variable: str
    path: str
    method: str
    points: str


METRICS: Final = Signal(
    0,
    "metrics",
    "METRICS",
    "v1/metrics",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "points",
)
LOGS: Final = Signal(
    1,
    "log records",
    "LOGS",
    "v1/logs",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "log records",
)
SIGNALS: Final = {signal.number: signal for signal in (METRICS, LOGS)}
"""Signals by number."""
