"""Readings of devices: values of fields, and process lists."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pipeline.model.instant import Instant

Value: TypeAlias = int | float
"""Value of a reading: finite, in the unit of its field. Texts about a device are in `Device`."""

Attrs: TypeAlias = tuple[tuple[str, str], ...]
"""Attributes that distinguish the series of one field on one device: sorted (name, value) pairs."""


class Reading(NamedTuple):
    """One value of one field of one device.

    It is a named tuple because a node with 56 MIG instances makes a thousand of them at each tick.
    A reading that the device cannot provide is left out: no value means "unknown".

    Attributes:
        device: uuid of the device.
        field: name of a field of the catalogue (`pipeline.fields`), which states type and unit.
        attrs: empty for most fields; XID code, throttle reason or link number for some.
        value: the value, in the unit of the field.
        window_start: start of the interval that the value describes; None for a value at a moment.
            For a counter the moment at which it was 0; None where that is unknown, because the
            driver started to count at an unknown time.
        at: when it was read.
        good_for_ns: how long the reading is valid without a newer one: three intervals of its tier,
            by the monotonic clock. After that its series ends, so that the values of a dead GPU do
            not freeze.
    """

    device: str
    field: str
    attrs: Attrs
    value: Value
    window_start: Instant | None
    at: Instant
    good_for_ns: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has a context on a device.

    Attributes:
        pid: pid of the process, in the pid namespace of the host.
        kind: which of NVML's three lists the process is in.
        memory_bytes: device memory that it uses; None where the driver does not report it.
    """

    pid: int
    kind: Literal["compute", "graphics", "mps"]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessList:
    """All processes on one device at one moment; an empty tuple if there are none.

    Attributes:
        device: uuid of the device.
        processes: sorted by pid and kind.
        at: when they were listed.
        good_for_ns: how long the list is valid without a newer one.
    """

    device: str
    processes: tuple[GpuProcess, ...]
    at: Instant
    good_for_ns: int
