"""What was read off a device."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pipeline.model.instant import Instant

Value: TypeAlias = int | float
"""A reading's value, finite, in the unit of its field. Text about a device belongs to `Device`."""

Attrs: TypeAlias = tuple[tuple[str, str], ...]
"""What tells the series of one field on one device apart, as sorted (name, value) pairs."""


class Reading(NamedTuple):
    """One value of one field of one device.

    A named tuple, since a node of 56 MIG instances makes a thousand of them each tick. A reading
    that the device can't give is left out: there is no value that means "unknown".

    Attributes:
        device: uuid of the device.
        field: name of a field of the catalogue (`pipeline.fields`), which states type and unit.
        attrs: empty for most fields; XID code, throttle reason or link number for some.
        value: in the unit of the field.
        window_start: start of the span that the value describes; None where it is a moment. Of a
            counter the moment at which it is known to have stood at 0; None where that isn't known,
            as of one that the driver has counted since who knows when.
        at: when it was read.
        good_for_ns: how long it stands without being read again, by the monotonic clock: three
            intervals of its tier. After that it has no series, since a dead GPU's values must not
            freeze.
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
        pid: in the pid namespace of the host.
        kind: which of NVML's three lists it stood in.
        memory_bytes: device memory it uses; None where the driver doesn't say.
    """

    pid: int
    kind: Literal["compute", "graphics", "mps"]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ProcessList:
    """All processes on one device at one moment; none at all is an empty tuple.

    Attributes:
        device: uuid of the device.
        processes: sorted by pid and kind.
        at: when they were listed.
        good_for_ns: as in `Reading`.
    """

    device: str
    processes: tuple[GpuProcess, ...]
    at: Instant
    good_for_ns: int
