"""The OTLP signals that podgpu sends: metrics and log records."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Signal:
    """An OTLP signal (specification 1.11).

    Attributes:
        number: identifies the signal of a record in a queue; it is stored, so it never changes.
        name: name for messages.
        variable: the signal's part of the names of environment variables.
        path: path over HTTP, without a leading `/`.
        method: gRPC method.
        points: name of what its messages contain, for messages of podgpu.
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
