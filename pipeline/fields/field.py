"""The definition of a field."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class Tier(Enum):
    """How often a field is read; it depends on the cost of reading it."""

    FAST = "fast"
    """Read at each `interval`: the driver returns a cached value within microseconds."""

    SLOW = "slow"
    """Read at each `slow_interval`: a read takes 0.1 ms or more, or the value rarely changes."""

    EVENT = "event"
    """Reported by the driver when it happens, and repeated at each `slow_interval`."""

    ONCE = "once"
    """Read once when the GPU is opened: the value never changes while the driver is loaded."""

    DERIVED = "derived"
    """Calculated by podgpu without a separate NVML call."""


Group: TypeAlias = Literal[
    "standard", "own", "profiling", "statistics", "links", "health", "limits", "labels"
]
"""Groups by which fields can be selected. `standard` and `own` are read by default."""


@dataclass(frozen=True, slots=True)
class Field:
    """A quantity that podgpu can read.

    Attributes:
        name: podgpu's name, which ends with the unit if there is one. It is also the key in JSON
            lines.
        unit: unit of the value in podgpu.
        help: one sentence for the HELP line, without abbreviations of units.
        call: the NVML call that returns the value, with the id of a field value or GPM metric.
        type: a counter never decreases unless the driver is reset. A label is a text in
            `Device.facts` and has no series.
        tier: how often the field is read.
        group: the group by which the field can be selected.
        dcgm: name in DCGM; empty if DCGM does not have the field.
        dcgm_1x: name in dcgm-exporter 1.x; empty if that did not have the field.
        aliases: further names by which the field can be selected: names of DCGM 4.6 and newer for
            the same value, and names that another field has too. In that case the type of the row
            in the counters list decides.
        dcgm_divisor: divide podgpu's value by this number to get DCGM's unit.
        dcgm_unit: DCGM's unit; empty if it is podgpu's unit.
        otel: name in OpenTelemetry's semantic conventions; empty if they do not have the field.
        otel_attrs: attributes that belong to the name in `otel`.
        otel_divisor: divide podgpu's value by this number to get OpenTelemetry's unit.
        attrs: names of the attributes of the field's readings.
        mig: whether the driver reports the field for a MIG instance.
        since: the first GPU architecture that has the field; empty for all architectures.
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
        """Unit of the metric family: DCGM's unit if it is different, else podgpu's."""
        return self.dcgm_unit or self.unit

    @property
    def metric(self) -> str:
        """Name of the metric family in Prometheus' text format: DCGM's name, or else podgpu's."""
        return self.dcgm or self.podgpu_metric

    @property
    def podgpu_metric(self) -> str:
        """Name of the metric family with podgpu's prefix, and with `_total` for counters."""
        return f"podgpu_{self.name}_total" if self.type == "counter" else f"podgpu_{self.name}"
