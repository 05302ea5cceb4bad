"""`SamplesTaken` in few bytes.

A node says the same fields of the same devices each second. So a line names a device and a list of
fields once, as the next entry of a table; rounds that follow hold numbers into the tables and the
values alone. Readings stay in their order: only neighbours with one time are put together.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from pipeline.model import Attrs, GpuProcess, Instant, ProcessList, Reading, SamplesTaken, Value

TABLE_BYTES: Final = 4 << 20
"""When lines that extend the tables come to this size, the writer starts its tables anew."""

Offset: TypeAlias = tuple[int, int]
"""An instant beside another one: nanoseconds on the monotonic clock, and how far the wall clock
went astray from that meanwhile (nearly always a small number)."""

_Column: TypeAlias = tuple[str, Attrs]
_Ref: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Written: TypeAlias = int | float | str


def offset(base: Instant, instant: Instant) -> Offset:
    """Return where the instant lies, seen from `base`."""
    mono = instant.mono_ns - base.mono_ns
    return mono, instant.wall_ns - base.wall_ns - mono


def instant_at(base: Instant, away: Offset) -> Instant:
    """Return the instant that lies there, seen from `base`."""
    mono, astray = away
    return Instant(base.mono_ns + mono, base.wall_ns + mono + astray)


class Group(msgspec.Struct, array_like=True):
    """Neighbouring readings of one device and one time."""

    device: _Ref
    columns: _Ref
    at: Offset
    window_start: Offset | None
    good_for_ns: int
    values: list[_Written]


class ProcessListRecord(msgspec.Struct, array_like=True):
    """A process list."""

    device: _Ref
    at: Offset
    good_for_ns: int
    processes: list[tuple[int, Literal["compute", "graphics", "mps"], int | None]]


class Samples(msgspec.Struct, omit_defaults=True):
    """A round of sampling, as it stands in the file.

    Attributes:
        reset: forget both tables before reading on.
        devices: further entries of the table of devices.
        columns: further entries of the table of columns, each a list of (field, attributes).
        groups: the readings.
        processes: the process lists.
    """

    reset: bool = False
    devices: list[str] = []
    columns: list[tuple[_Column, ...]] = []
    groups: list[Group] = []
    processes: list[ProcessListRecord] = []

    @property
    def extends(self) -> bool:
        """Whether it adds to the tables."""
        return bool(self.devices or self.columns)


class SamplesEncoder:
    """Turns rounds into what stands in the file; keeps the tables."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._columns: dict[tuple[_Column, ...], int] = {}
        self._bytes = 0

    def encode(self, event: SamplesTaken, base: Instant) -> Samples:
        """Return a round, with times as seen from `base`."""
        line = Samples()
        if self._bytes > TABLE_BYTES:
            self._devices.clear()
            self._columns.clear()
            self._bytes = 0
            line.reset = True
        for run in _runs(event.readings):
            first = run[0]
            start = first.window_start
            columns = tuple([(reading.field, reading.attrs) for reading in run])
            line.groups.append(
                Group(
                    index_in(self._devices, first.device, line.devices),
                    index_in(self._columns, columns, line.columns),
                    offset(base, first.at),
                    None if start is None else offset(base, start),
                    first.good_for_ns,
                    [_written(reading.value) for reading in run],
                )
            )
        for found in event.processes:
            line.processes.append(
                ProcessListRecord(
                    index_in(self._devices, found.device, line.devices),
                    offset(base, found.at),
                    found.good_for_ns,
                    [(p.pid, p.kind, p.memory_bytes) for p in found.processes],
                )
            )
        return line

    def extended(self, size: int) -> None:
        """Note the size of a line that adds to the tables."""
        self._bytes += size


class SamplesDecoder:
    """Turns what stands in the file into rounds; keeps the tables."""

    def __init__(self) -> None:
        self._devices: list[str] = []
        self._columns: list[tuple[_Column, ...]] = []
        self._bytes = 0

    def decode(self, line: Samples, base: Instant, size: int) -> SamplesTaken:
        """Return the round of a line of `size` bytes, with times as seen from `base`.

        Raises:
            ValueError: the line doesn't fit the tables.
            IndexError: the line points past the tables.
        """
        if line.reset:
            self._devices.clear()
            self._columns.clear()
            self._bytes = 0
        if line.extends:
            self._bytes += size
            # The writer starts anew long before; who goes on has memory in mind.
            if self._bytes > 8 * TABLE_BYTES:
                raise ValueError("the tables grow without end")
            self._devices += line.devices
            self._columns += line.columns
        readings: list[Reading] = []
        for group in line.groups:
            device, at = self._devices[group.device], instant_at(base, group.at)
            start = None if group.window_start is None else instant_at(base, group.window_start)
            good_for = group.good_for_ns
            readings += [
                Reading(device, field, attrs, _value(value), start, at, good_for)
                for (field, attrs), value in zip(
                    self._columns[group.columns], group.values, strict=True
                )
            ]
        return SamplesTaken(
            tuple(readings),
            tuple(
                ProcessList(
                    self._devices[found.device],
                    tuple(GpuProcess(pid, kind, memory) for pid, kind, memory in found.processes),
                    instant_at(base, found.at),
                    found.good_for_ns,
                )
                for found in line.processes
            ),
        )


def _runs(readings: tuple[Reading, ...]) -> Iterator[list[Reading]]:
    """Yield neighbours that share all but field, attributes and value."""
    run: list[Reading] = []
    for reading in readings:
        if run:
            first = run[0]
            if (
                reading.at != first.at
                or reading.device != first.device
                or reading.good_for_ns != first.good_for_ns
                or reading.window_start != first.window_start
            ):
                yield run
                run = []
        run.append(reading)
    if run:
        yield run


def index_in(table: dict[Any, int], entry: object, new: list[Any]) -> int:
    """Return an entry's place in a table; one that is new is put at its end, and into `new`."""
    known = table.get(entry)
    if known is None:
        known = table[entry] = len(table)
        new.append(entry)
    return known


def _written(value: Value) -> _Written:
    """Return a value as JSON can hold it: what has no exact number there becomes text."""
    if value.__class__ is float and value - value == 0:
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    return repr(value)


def _value(written: _Written) -> Value:
    if not isinstance(written, str):
        return written
    parse: Callable[[str], Value] = float if written in {"nan", "inf", "-inf"} else int
    return parse(written)


def samples_of(body: object) -> Samples:
    """Read a round as it stands in the file.

    Raises:
        msgspec.ValidationError: it is not one.
    """
    return msgspec.convert(body, Samples)


def builtins_of(line: Samples) -> dict[str, Any]:
    """Return a round as JSON's types."""
    return cast("dict[str, Any]", msgspec.to_builtins(line))
