"""The definition of a field."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class Tier(Enum):
    """How often a field is read; it depends on the cost of reading it."""

    FAST = "fast"
    """At each `interval`: the driver has the value cached and returns it within microseconds."""

    SLOW = "slow"
    """At each `slow_interval`: costs 0.1 ms or more, or the value hardly ever changes."""

    EVENT = "event"
    """Reported by the driver when it happens, and repeated at each `slow_interval`."""

    ONCE = "once"
    """Never changes while the driver is loaded: read once when the GPU is opened."""

    DERIVED = "derived"
    """Calculated by podgpu without an NVML call of its own."""


Group: TypeAlias = Literal[
    "standard", "own", "profiling", "statistics", "links", "health", "limits", "labels"
]
"""Groups by which fields can be selected. `standard` and `own` are read by default."""


@dataclass(frozen=True, slots=True)
class Field:
    """A quantity that podgpu can read.

    Attributes:
        name: podgpu's name, which ends with the unit if there is one; also the key in JSON lines.
        unit: unit of the value in podgpu's model.
        help: one sentence for the HELP line, without abbreviations of units.
        call: the NVML call that returns it, with the id of a field value or GPM metric.
        type: a counter never decreases unless the driver is reset; a label is a text in
            `Device.facts` and has no series.
        tier: how often it is read.
        group: the group by which it can be selected.
        dcgm: its name in DCGM; empty if DCGM does not have it.
        dcgm_1x: its name in dcgm-exporter 1.x; empty if that did not have it.
        aliases: further names by which it can be selected: names of DCGM 4.6 and newer for the
            same value, and names that another field has too. Then the type of the row decides.
        dcgm_divisor: the model's value divided by this is in DCGM's unit.
        dcgm_unit: DCGM's unit if it differs from the model's.
        otel: the name in OpenTelemetry's semantic conventions; empty if they have none.
        otel_attrs: attributes that belong to that name.
        otel_divisor: the model's value divided by this is in OpenTelemetry's unit.
        attrs: names of the attributes of its readings.
        mig: whether the driver reports it for a MIG instance.
        since: the first architecture that has it; empty for all architectures.
    """

    name: str
    unit: str
    help: str
    call: str
    type: Literal["gauge", "counter", "label"] = "gauge"
    tier: Tier = Tier.SLOW
    group: Group = "standard"
    dcgm: str = ""
    dcgm_1x: str = ""
    aliases: tuple[str, ...] = ()
    dcgm_divisor: int = 1
    dcgm_unit: str = ""
    otel: str = ""
    otel_attrs: tuple[tuple[str, str], ...] = ()
    otel_divisor: int = 1
    attrs: tuple[str, ...] = ()
    mig: bool = False
    since: str = ""

    @property
    def metric_unit(self) -> str:
        """Unit of the metric family: DCGM's if it differs from the model's."""
        return self.dcgm_unit or self.unit

    @property
    def metric(self) -> str:
        """Name of the metric family in Prometheus' text format: DCGM's, or else podgpu's."""
        return self.dcgm or self.podgpu_metric

    @property
    def podgpu_metric(self) -> str:
        """The metric family's name with podgpu's prefix, and `_total` for counters."""
        return f"podgpu_{self.name}_total" if self.type == "counter" else f"podgpu_{self.name}"
