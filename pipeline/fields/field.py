"""The definition of a field."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias


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
    "standard", "own", "profiling", "statistics", "links", "health", "limits", "details", "labels"
]
"""Groups by which fields can be selected. `standard` and `own` are read by default."""


class MetricUnit(NamedTuple):
    """The unit of a field's value in a metric family.

    Attributes:
        unit: the unit.
        divisor: divide podgpu's value by this number to get the unit. A fraction multiplies.
    """

    unit: str
    divisor: int | Fraction = 1


_BASE_UNITS: Final[Mapping[str, MetricUnit]] = MappingProxyType(
    {
        "MHz": MetricUnit("hertz", Fraction(1, 1_000_000)),
        "millijoules": MetricUnit("joules", 1000),
        "nanoseconds": MetricUnit("seconds", 1_000_000_000),
        "percent": MetricUnit("ratio", 100),
        "bytes": MetricUnit("bytes"),
        "bytes/s": MetricUnit("bytes/s"),
        "MB/s": MetricUnit("bytes/s", Fraction(1, 1_000_000)),
    }
)
"""Unit of DCGM's `dcgm_base`, by podgpu's unit of the field."""


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
        dcgm_base: name in DCGM 4.7 and newer for the value in a base unit, as hertz or seconds;
            empty if DCGM does not have one.
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
    dcgm_base: str = ""
    otel: str = ""
    otel_attrs: tuple[tuple[str, str], ...] = ()
    otel_divisor: int = 1
    attrs: tuple[str, ...] = ()
    mig: bool = False
    since: str = ""

    @property
    def dcgm_names(self) -> tuple[str, ...]:
        """All names of the field in DCGM and dcgm-exporter, the usual one first."""
        names = (self.dcgm, self.dcgm_1x, *self.aliases, self.dcgm_base)
        return tuple(name for name in names if name)

    def unit_in(self, metric: str) -> MetricUnit:
        """Return the unit of the value in a metric family that has one of the field's names."""
        if metric == self.podgpu_metric:
            return MetricUnit(self.unit)
        if metric == self.dcgm_base:
            return _BASE_UNITS[self.unit]
        return MetricUnit(self.metric_unit, self.dcgm_divisor)

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
