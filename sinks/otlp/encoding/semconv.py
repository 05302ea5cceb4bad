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
        name: with dots, or as on the Prometheus page.
        kind: a counter becomes a monotonic sum, an up-down counter a sum that is not monotonic.
        unit: in UCUM; empty if there is none.
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


INSTRUMENTS: Final[Mapping[str, Instrument]] = {
    instrument.name: instrument
    for instrument in (
        Instrument(
            "hw.gpu.utilization",
            "gauge",
            "1",
            whole=False,
            description="Part of the time during which the GPU worked at the task.",
        ),
        Instrument(
            "hw.gpu.memory.usage",
            "updowncounter",
            "By",
            whole=True,
            description="Device memory in use.",
        ),
        Instrument(
            "hw.gpu.memory.limit",
            "updowncounter",
            "By",
            whole=True,
            description="Total device memory.",
        ),
        Instrument(
            "hw.gpu.memory.utilization",
            "gauge",
            "1",
            whole=False,
            description="Part of the device memory that is in use.",
        ),
        Instrument(
            "hw.gpu.io",
            "counter",
            "By",
            whole=True,
            description="Bytes that the GPU has sent or received over PCIe.",
        ),
        Instrument(
            "hw.energy",
            "counter",
            "J",
            whole=False,
            description="Energy that the board has consumed.",
            typed=True,
        ),
        Instrument(
            "hw.power",
            "gauge",
            "W",
            whole=False,
            description="Power that the board draws.",
            typed=True,
        ),
        Instrument(
            "hw.errors",
            "counter",
            "{error}",
            whole=True,
            description="Errors of the GPU, by type.",
            typed=True,
        ),
        Instrument(
            "hw.status",
            "updowncounter",
            "1",
            whole=True,
            description="1 for the state that the GPU is in, 0 for all others.",
            typed=True,
        ),
        Instrument(
            "hw.temperature",
            "gauge",
            "Cel",
            whole=False,
            description="Temperature at the named location.",
        ),
        Instrument(
            "hw.temperature.limit",
            "gauge",
            "Cel",
            whole=False,
            description="Temperature from which the GPU protects itself.",
        ),
        Instrument(
            "hw.fan.speed_ratio",
            "gauge",
            "1",
            whole=False,
            description="Speed of the fans as a part of their maximum speed.",
        ),
    )
}
"""The metrics that podgpu has values for, by name."""

STATUS: Final = INSTRUMENTS["hw.status"]
MEMORY_UTILIZATION: Final = INSTRUMENTS["hw.gpu.memory.utilization"]
