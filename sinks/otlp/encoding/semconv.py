"""OpenTelemetry's semantic conventions for hardware, release 1.44.0, as data.

All of `hw.*` is still in development. If a name changes there, only this module changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "updowncounter"]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

VENDOR: Final = "NVIDIA"
HW_TYPE: Final = ("hw.type", "gpu")
STATES: Final = ("ok", "degraded", "failed", "predicted_failure")


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric.

    Attributes:
        name: name of the metric, with dots or as on the Prometheus page.
        kind: a counter becomes a monotonic sum, an up-down counter a sum that is not monotonic.
        unit: unit in UCUM; empty if there is none.
        whole: whether its values are integers.
        description: one sentence.
        typed: whether its points need the attribute `hw.type`.
    """

    name: str
    kind: Kind
    unit: str
    whole: bool
    description: str
    typed: bool = False


_ROWS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    (
        "hw.gpu.utilization",
        "gauge",
        "1",
        "Part of the time during which the GPU worked at the task.",
    ),
    ("hw.gpu.memory.usage", "updowncounter", "By", "Device memory in use."),
    ("hw.gpu.memory.limit", "updowncounter", "By", "Total device memory."),
    ("hw.gpu.memory.utilization", "gauge", "1", "Part of the device memory that is in use."),
    ("hw.gpu.io", "counter", "By", "Bytes that the GPU has sent or received over PCIe."),
    ("hw.energy", "counter", "J", "Energy that the board has consumed."),
    ("hw.power", "gauge", "W", "Power that the board draws."),
    ("hw.errors", "counter", "{error}", "Errors of the GPU, by type."),
    ("hw.status", "updowncounter", "1", "1 for the state that the GPU is in, 0 for all others."),
    ("hw.temperature", "gauge", "Cel", "Temperature at the named location."),
    ("hw.temperature.limit", "gauge", "Cel", "Temperature from which the GPU protects itself."),
    ("hw.fan.speed_ratio", "gauge", "1", "Speed of the fans as a part of their maximum speed."),
)
_TYPED: Final = frozenset({"hw.energy", "hw.power", "hw.errors", "hw.status"})
"""Metrics that other types of hardware have too."""

INSTRUMENTS: Final[Mapping[str, Instrument]] = {
    name: Instrument(
        name,
        kind,
        unit,
        whole=kind != "gauge" and unit != "J",
        description=description,
        typed=name in _TYPED,
    )
    for name, kind, unit, description in _ROWS
}
"""The metrics that podgpu has values for, by name."""

STATUS: Final = INSTRUMENTS["hw.status"]
MEMORY_UTILIZATION: Final = INSTRUMENTS["hw.gpu.memory.utilization"]
