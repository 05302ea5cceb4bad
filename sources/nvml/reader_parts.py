"""What to read of a device, the readings of a visit, and the parts of readers.

A reader is created once per device and called each round; it appends readings to a result and
returns NVML's code. A value that means "not available" appends nothing and is no error; an
impossible value appends nothing and returns `OUT_OF_RANGE`.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pipeline.fields import CATALOGUE, FieldPlan, Tier
from pipeline.model import NS, Attrs, Instant, ProcessList, Reading
from sources.nvml import codes
from sources.nvml.device_filter import EVERYTHING, DeviceFilter
from sources.nvml.event_counts import ClockEvents
from sources.nvml.library import Call, Handle, Library
from sources.nvml.options import Options

VALIDITY_INTERVALS: Final = 3
"""Number of intervals for which a reading, or a usage sample, is valid."""

NONE32: Final = 0xFFFF_FFFF
NONE64: Final = 0xFFFF_FFFF_FFFF_FFFF
COUNT: Final = 1 << 62
MILLIWATTS: Final = 100_000_000
"""Limits that are far above the values of any counter, and above any GPU's power."""

SLOW: Final = frozenset(spec.name for spec in CATALOGUE if spec.tier in (Tier.SLOW, Tier.ONCE))
"""Fields of the slow tier."""


class GpuReadings(list[Reading]):
    """The results of one visit to a GPU and its MIG instances.

    Attributes:
        uuid: uuid of the physical GPU.
        processes: the lists of processes, as `SamplesTaken.processes`.
        errors: NVML's codes of the readings that failed.
        up: whether the GPU responded.
        at: when the visit took place.
    """

    __slots__ = ("at", "errors", "processes", "up", "uuid")

    def __init__(self, uuid: str, at: Instant) -> None:
        super().__init__()
        self.uuid = uuid
        self.at = at
        self.processes: list[ProcessList] = []
        self.errors: list[int] = []
        self.up = True


Reader: TypeAlias = Callable[[GpuReadings, Instant], int]


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """What to read of each device.

    Attributes:
        fields: names of the fields.
        processes: whether processes are listed.
        fast_valid_ns: how long a reading of the fast tier is valid.
        slow_valid_ns: how long a reading of the slow tier is valid.
        window_ns: length of the window of statistics, in nanoseconds.
        clock_events: the counter of clock events.
        choice: which devices are read.
        pcie_totals: the bytes over PCIe so far, by uuid and rate; readers add to them.
        labels: names of the requested fields of type `label`.
    """

    fields: frozenset[str]
    processes: bool = True
    fast_valid_ns: int = 0
    slow_valid_ns: int = 0
    window_ns: int = 0
    clock_events: ClockEvents = field(default_factory=lambda: ClockEvents(0))
    choice: DeviceFilter = EVERYTHING
    pcie_totals: dict[str, dict[str, float]] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        plan: FieldPlan,
        options: Options,
        clock_events: ClockEvents,
        pcie_totals: dict[str, dict[str, float]],
    ) -> "ReadingRequest":
        """Create the request from the requested fields and the options."""
        interval_ns = round(options.interval * NS)
        window_ns = round(options.statistics_window * NS)
        return cls(
            frozenset(spec.name for spec in plan.fields),
            options.processes and options.process_readings,
            interval_ns * VALIDITY_INTERVALS,
            round(options.slow_interval * NS) * VALIDITY_INTERVALS,
            # Rounded up: a scrape interval that is no multiple may contain one interval more.
            -(-window_ns // interval_ns) * interval_ns,
            clock_events,
            DeviceFilter.parse(options.devices),
            pcie_totals,
            frozenset(label.field for label in plan.labels),
        )


@dataclass(frozen=True, slots=True)
class FieldOutput:
    """Converts the numbers of one field to readings.

    Attributes:
        uuid: uuid of the device.
        field: name of the field.
        valid_ns: how long a reading is valid.
        max_value: the largest possible value, in NVML's unit.
        divisor: divides a value to convert it to the field's unit.
        attrs: the attributes of the readings.
        unknown: values above `max_value` that mean "not available".
    """

    uuid: str
    field: str
    valid_ns: int
    max_value: int
    divisor: int = 1
    attrs: Attrs = ()
    unknown: Sequence[int] = (NONE32, NONE64)

    def add(
        self, result: GpuReadings, at: Instant, value: int | float, start: Instant | None = None
    ) -> int:
        """Append the reading of a value; return `OK` or `OUT_OF_RANGE`.

        Args:
            result: gets the reading.
            at: when the value was read.
            value: the value, in NVML's unit.
            start: start of the time that the value covers; None for a value of one moment.
        """
        if 0 <= value <= self.max_value:
            if self.divisor != 1:
                value /= self.divisor
            result.append(
                Reading(self.uuid, self.field, self.attrs, value, start, at, self.valid_ns)
            )
        elif value not in self.unknown:
            return codes.OUT_OF_RANGE
        return codes.OK


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """A device, what to read of it, and the clock."""

    nvml: Library
    handle: Handle
    uuid: str
    wanted: ReadingRequest
    now: Callable[[], Instant]

    def wants(self, *fields: str) -> bool:
        """Return whether any of these fields is requested."""
        return not self.wanted.fields.isdisjoint(fields)

    def bind(self, names: str | Sequence[str], *args: object) -> Call:
        """Return a call that has the handle as its first argument."""
        return self.nvml.bind(names, self.handle, *args)

    def output(self, name: str, max_value: int, divisor: int = 1, attrs: Attrs = ()) -> FieldOutput:
        """Create the output of a field of this device."""
        wanted = self.wanted
        valid_ns = wanted.slow_valid_ns if name in SLOW else wanted.fast_valid_ns
        return FieldOutput(self.uuid, name, valid_ns, max_value, divisor, attrs)


class GrowingArray:
    """An array of structs that the driver fills; it grows as required.

    Args:
        item: the struct.
        size: number of structs in the array at first.
        max_size: number of structs up to which it grows.

    Attributes:
        count: how many structs the last call returned; 0 if it failed.
    """

    def __init__(self, item: Any, size: int, max_size: int) -> None:
        self.count = 0
        self._item = item
        self._max_size = max_size
        self._box = ctypes.c_uint()
        self._array = (item * size)()

    def fill(self, call: Callable[[Any, Any], int]) -> int:
        """Fill the array; return NVML's code.

        Args:
            call: the call; its arguments are a reference to the number of structs, and the array.
        """
        while True:
            size = self._box.value = len(self._array)
            code = call(ctypes.byref(self._box), self._array)
            if code != codes.INSUFFICIENT_SIZE or size >= self._max_size:
                self.count = self._box.value if code == codes.OK else 0
                return code
            # Twice the number of structs: there may be more before the next call.
            size = min(self._max_size, max(self._box.value, size) * 2)
            self._array = (self._item * size)()

    def entries(self) -> list[Any]:
        """Return the structs that the last call returned."""
        return list(self._array[: self.count])


def reader(call: Call, *parts: tuple[object, str, FieldOutput]) -> Reader:
    """Create a reader of the numbers that one call returns.

    Args:
        call: the bound call.
        parts: a box that the call writes to, the name of a member, and the output for its number.
    """

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
        if code == codes.OK:
            for box, member, output in parts:
                code = output.add(result, at, getattr(box, member)) or code
        return code

    return read


def combined(result: GpuReadings, found: Iterable[int]) -> int:
    """Return one code for a reader that makes several calls, and add the errors of single calls.

    `OK` if a call succeeded or failed with an error; `NOT_SUPPORTED` if no call had a value;
    `NOT_CALLED` if no call was made; or a code that concerns the whole device.

    Args:
        result: gets the errors.
        found: makes the calls and yields their codes. It is not continued after a code that
            concerns the whole device.
    """
    overall = codes.NOT_CALLED
    for code in found:
        if code in codes.LOST or code in codes.DRIVER_GONE:
            return code
        if code not in codes.NO_READING:
            overall = codes.OK
            if code != codes.OK:
                result.errors.append(code)
        elif overall == codes.NOT_CALLED:
            overall = codes.NOT_SUPPORTED
    return overall
