"""Compact encoding of `SamplesTaken`.

A node reports the same fields of the same devices each second. Therefore a device and a list of
fields are written once, as new entries of tables. Later lines contain only values, and indices into
these tables. The order of readings is kept: only adjacent readings with the same device and times
are grouped.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from pipeline.model import (
    Attrs,
    GpuProcess,
    Instant,
    ProcessList,
    Reading,
    SamplesTaken,
    Value,
)

TABLE_BYTES: Final = 4 << 20
"""Maximum total size in bytes of the lines that extend the tables. Then the writer clears them."""

Offset: TypeAlias = tuple[int, int]
"""An instant relative to another one: the difference on the monotonic clock in nanoseconds, and the
difference on the wall clock minus the first one, which is nearly always a small number."""

_COMMON: Final = attrgetter("at", "device", "good_for_ns", "window_start")
"""The attributes that are equal for all readings of a group."""

T = TypeVar("T")

_Column: TypeAlias = tuple[str, Attrs]
_Ref: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Written: TypeAlias = int | float | str


def offset(base: Instant, instant: Instant) -> Offset:
    """Return an instant relative to `base`."""
    mono = instant.mono_ns - base.mono_ns
    return mono, instant.wall_ns - base.wall_ns - mono


def instant_at(base: Instant, distance: Offset) -> Instant:
    """Return the instant at an offset from `base`."""
    mono, wall = distance
    return Instant(base.mono_ns + mono, base.wall_ns + mono + wall)


class TableLine(msgspec.Struct, omit_defaults=True):
    """An event with new entries of two tables, to which it and later lines refer by index.

    Attributes:
        reset: whether to clear both tables before this line is read.
        devices: new entries of the table of devices.
        entries: new entries of the other table. In the file, the key has the name of that table.
    """

    reset: bool = False
    devices: list[str] = []
    entries: list[Any] = []

    @property
    def extends(self) -> bool:
        """Whether the line adds entries to the tables."""
        return bool(self.devices or self.entries)


class TableWriter:
    """The tables of an encoder: the index of each entry."""

    def __init__(self) -> None:
        self.devices: dict[str, int] = {}
        self.entries: dict[object, int] = {}
        self._bytes = 0

    def reset_if_full(self) -> bool:
        """Clear the tables if they are too large; return whether they were."""
        if self._bytes <= TABLE_BYTES:
            return False
        self.devices.clear()
        self.entries.clear()
        self._bytes = 0
        return True

    def count(self, line: TableLine, size: int) -> None:
        """Add the size of a line to the size of the tables, if the line extends them."""
        self._bytes += size if line.extends else 0


class TableReader(Generic[T]):
    """The tables of a decoder: lists of entries."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.entries: list[T] = []
        self._bytes = 0

    def extend(self, line: TableLine, entries: Iterable[T], size: int) -> None:
        """Add the new entries of a line of `size` bytes. Clear the tables first if it says so.

        Raises:
            ValueError: the tables are too large.
        """
        if line.reset:
            self.devices.clear()
            self.entries.clear()
            self._bytes = 0
        if line.extends:
            self._bytes += size
            # The writer resets its tables long before. Without a limit, a file could fill memory.
            if self._bytes > 8 * TABLE_BYTES:
                raise ValueError("the tables are too large")
            self.devices += line.devices
            self.entries += entries


class Group(msgspec.Struct, array_like=True):
    """Adjacent readings of one device at one time."""

    device: _Ref
    columns: _Ref
    at: Offset
    window_start: Offset | None
    good_for_ns: int
    values: list[_Written]


class ProcessListRecord(msgspec.Struct, array_like=True):
    """The processes on a device at one time."""

    device: _Ref
    at: Offset
    good_for_ns: int
    processes: list[tuple[int, Literal["compute", "graphics", "mps"], int | None]]


class Samples(TableLine, omit_defaults=True):
    """A `SamplesTaken` event as written in the file.

    Attributes:
        entries: columns, each a list of (field, attributes).
        groups: the readings.
        processes: the process lists.
    """

    entries: list[tuple[_Column, ...]] = msgspec.field(default_factory=list, name="columns")
    groups: list[Group] = []
    processes: list[ProcessListRecord] = []


class SamplesEncoder(TableWriter):
    """Encodes events for the file, and keeps the tables for later events."""

    def encode(self, event: SamplesTaken, base: Instant) -> Samples:
        """Return the encoded event, with times relative to `base`."""
        line = Samples(reset=self.reset_if_full())
        for _, adjacent in groupby(event.readings, _COMMON):
            run = list(adjacent)
            first = run[0]
            start = first.window_start
            columns = tuple([(reading.field, reading.attrs) for reading in run])
            line.groups.append(
                Group(
                    index_in(self.devices, first.device, line.devices),
                    index_in(self.entries, columns, line.entries),
                    offset(base, first.at),
                    None if start is None else offset(base, start),
                    first.good_for_ns,
                    [_encoded_value(reading.value) for reading in run],
                )
            )
        for process_list in event.processes:
            line.processes.append(
                ProcessListRecord(
                    index_in(self.devices, process_list.device, line.devices),
                    offset(base, process_list.at),
                    process_list.good_for_ns,
                    [(p.pid, p.kind, p.memory_bytes) for p in process_list.processes],
                )
            )
        return line


class SamplesDecoder(TableReader[tuple[_Column, ...]]):
    """Decodes events from the file, and keeps the tables for later events."""

    def decode(self, line: Samples, base: Instant, size: int) -> SamplesTaken:
        """Return the event of a line of `size` bytes, with times relative to `base`.

        Raises:
            ValueError: the line does not fit the tables, or the tables are too large.
            IndexError: an index is outside of the tables.
        """
        self.extend(line, line.entries, size)
        readings: list[Reading] = []
        for group in line.groups:
            device, at = self.devices[group.device], instant_at(base, group.at)
            start = None if group.window_start is None else instant_at(base, group.window_start)
            good_for = group.good_for_ns
            readings += [
                Reading(device, field, attrs, _decoded_value(value), start, at, good_for)
                for (field, attrs), value in zip(
                    self.entries[group.columns], group.values, strict=True
                )
            ]
        return SamplesTaken(
            tuple(readings),
            tuple(
                ProcessList(
                    self.devices[process_list.device],
                    tuple(
                        GpuProcess(pid, kind, memory)
                        for pid, kind, memory in process_list.processes
                    ),
                    instant_at(base, process_list.at),
                    process_list.good_for_ns,
                )
                for process_list in line.processes
            ),
        )


def index_in(table: dict[Any, int], entry: object, new: list[Any]) -> int:
    """Return the index of an entry in a table. A new entry is added to the table and to `new`."""
    known = len(table)
    index = table.setdefault(entry, known)
    if index == known:
        new.append(entry)
    return index


def _encoded_value(value: Value) -> _Written:
    """Return a value for JSON. A number that JSON cannot represent exactly becomes a text."""
    if value.__class__ is float and value - value == 0:
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    return repr(value)


def _decoded_value(written: _Written) -> Value:
    if not isinstance(written, str):
        return written
    return float(written) if written in {"nan", "inf", "-inf"} else int(written)
