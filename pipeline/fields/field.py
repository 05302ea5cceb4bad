"""What a field is."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class Tier(Enum):
    """How often a field is read, chosen by what reading it costs."""

    FAST = "fast"
    """Each `interval`: answered from the driver's cache, in microseconds."""

    SLOW = "slow"
    """Each `slow_interval`: costs a tenth of a millisecond or more, or hardly ever changes."""

    EVENT = "event"
    """Told by the driver when it happens, and repeated each `slow_interval`."""

    ONCE = "once"
    """Never changes while the driver is loaded: read when the GPU is opened."""

    DERIVED = "derived"
    """Worked out by podgpu, without a call of its own."""


Group: TypeAlias = Literal[
    "standard", "own", "profiling", "statistics", "links", "health", "limits", "labels"
]
"""What a field is asked for with. `standard` and `own` are read when nobody chooses."""


@dataclass(frozen=True, slots=True)
class Field:
    """A reading that podgpu knows.

    Attributes:
        name: podgpu's name, the unit last where there is one: the key in JSON lines too.
        type: a counter only grows, but for a reset of the driver; a label is a text that stands in
            `Device.facts` and makes no series of its own.
        unit: of the value in the model.
        help: one sentence for the HELP line, without the unit's abbreviation.
        call: the NVML call it comes from, with the id of a field value or GPM metric.
        tier: how often it is read.
        group: what it is asked for with, besides by its name.
        dcgm: DCGM's name of it; empty where DCGM has none.
        dcgm_1x: its name in dcgm-exporter 1.x; empty where that had none.
        aliases: further names that it is asked for by: those that DCGM 4.6 and newer have for the
            same value, and some that belong to another field too, where the type that stands
            beside the name tells which is meant.
        dcgm_divisor: the model's value divided by this is in DCGM's unit.
        dcgm_unit: DCGM's unit where it is not the model's.
        otel: the name in OpenTelemetry's semantic conventions; empty where they have none.
        otel_attrs: attributes that stand with that name.
        otel_divisor: the model's value divided by this is in OpenTelemetry's unit.
        attrs: names of the attributes that its readings carry.
        mig: whether the driver gives it for a MIG instance.
        since: the first architecture whose cards give it; empty for all that the driver knows.
    """

    name: str
    type: Literal["gauge", "counter", "label"]
    unit: str
    help: str
    call: str
    tier: Tier
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
        """Unit of the metric family: DCGM's where it differs from the model's."""
        return self.dcgm_unit or self.unit

    @property
    def metric(self) -> str:
        """Name of the metric family in Prometheus' text format: DCGM's, or ours."""
        return self.dcgm or self.podgpu_metric

    @property
    def podgpu_metric(self) -> str:
        """Our own family name, `_total` on counters."""
        return f"podgpu_{self.name}_total" if self.type == "counter" else f"podgpu_{self.name}"
