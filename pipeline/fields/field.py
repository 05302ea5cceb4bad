"""What a field is."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Tier(Enum):
    """How often a field is read, chosen by what reading it costs."""

    FAST = "fast"
    """Each `interval`: answered from the driver's cache, in microseconds."""

    SLOW = "slow"
    """Each `slow_interval`: costs a tenth of a millisecond or more, or hardly ever changes."""

    EVENT = "event"
    """Told by the driver when it happens, and repeated each `slow_interval`."""

    DERIVED = "derived"
    """Worked out by podgpu, without a call of its own."""


@dataclass(frozen=True, slots=True)
class Field:
    """A reading that podgpu knows.

    Attributes:
        name: podgpu's name, the unit last where there is one: the key in JSON lines too.
        type: a counter only grows, but for a reset of the driver.
        unit: of the value in the model.
        help: one sentence for the HELP line, without the unit's abbreviation.
        call: the NVML call it comes from.
        tier: how often it is read.
        dcgm: dcgm-exporter's metric name; empty where DCGM has none.
        dcgm_divisor: the model's value divided by this is in DCGM's unit.
        dcgm_unit: DCGM's unit where it is not the model's.
        attrs: names of the attributes that its readings carry.
        mig: whether the driver gives it for a MIG instance.
    """

    name: str
    type: Literal["gauge", "counter"]
    unit: str
    help: str
    call: str
    tier: Tier
    dcgm: str = ""
    dcgm_divisor: int = 1
    dcgm_unit: str = ""
    attrs: tuple[str, ...] = ()
    mig: bool = False

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
