"""What is sent: metrics, and log records beside them."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Signal:
    """A kind of message, in the words of the OTLP specification 1.11.

    Attributes:
        number: of its records in a queue; it is stored, so it never changes.
        name: as people call it.
        variable: its part of the names of variables.
        path: where it is taken over HTTP, without a `/` before it.
        method: that takes it over gRPC.
        points: what its messages hold.
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
SIGNALS: Final = MappingProxyType({found.number: found for found in (METRICS, LOGS)})
"""By number."""
