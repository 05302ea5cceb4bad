"""How long each process kept a GPU busy: NVML's process utilisation, weighed and added up.

The driver looks every so often which processes run (five times a second on Hopper, at least once a
second by nvml.h) and keeps what it found for some seconds. Asked for what came after a moment, it
answers with one entry for each process that it found: its mean since then, and when it was found
last. So an entry counts for the time from that moment to its own stamp, not from call to call.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS, Instant
from pipeline.usage import apportion
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.readers import GpuReadings

LATEST_US: Final = 1_000_000
"""The driver's samples of more than a second ago have all been seen. Else a process that begins
after a time without any would be credited with that time too."""

HELD_NS: Final = 13 * NS
"""For how long the driver surely keeps its samples: some 70, at five a second."""

STEP_NS: Final = NS // 5
"""A clock that went so far astray between two looks was set: stamps before and after it are not to
be compared."""

_ROOM: Final = 128
_ROOM_MOST: Final = 1 << 14
_PERCENT_US: Final = 10
"""Nanoseconds in a hundredth of a microsecond: percent times microseconds is nanoseconds / 10."""


@dataclass(frozen=True, slots=True)
class ProcessBusyTime:
    """What a process did since the look before.

    Attributes:
        busy_ns: how long it kept the GPU busy.
        stamp_us: when it was last found to, by the wall clock, in microseconds.
    """

    busy_ns: int
    stamp_us: int


class Utilization:
    """Asks one GPU again and again.

    Args:
        nvml: the library.
        handle: of the GPU.

    Attributes:
        by_pid: what the last look brought, by pid; a process that isn't there did nothing. None
            where that can't be told of all the time since the look before.
        is_plausible: whether all that the driver said last can be true.
    """

    def __init__(self, nvml: Library, handle: Handle) -> None:
        self._function = nvml.function("nvmlDeviceGetProcessUtilization")
        self._handle = handle
        self._count = ctypes.c_uint()
        self._since = ctypes.c_ulonglong()
        self._last: Instant | None = None
        self.by_pid: Mapping[int, ProcessBusyTime] | None = None
        self.is_plausible = True
        self._span_ns = 0
        self._rest: dict[int, ProcessBusyTime] = {}
        self._make_room(_ROOM)

    def _make_room(self, size: int) -> None:
        self._size = size
        self._array = library.utilization_array(size)

    def read(self, sheet: GpuReadings, at: Instant) -> int:
        """Ask what happened since this was last called. A `Reader`."""
        self.by_pid = None
        last, self._last = self._last, at
        if last is None or not _steady(last, at):
            # From now on: what the driver still holds is of nobody who is watched.
            self._since.value = at.wall_ns // 1000
            last = None
        code = self._call()
        if code not in (codes.OK, codes.NOT_FOUND):
            self._last = None
            return code
        most_us = at.wall_ns // 1000 + LATEST_US
        since_us = int(self._since.value)
        found, newest, wrong = self._weighed(self._count.value if code == codes.OK else 0, most_us)
        self._span_ns = (newest - since_us) * 1000
        self._since.value = max(newest, at.wall_ns // 1000 - LATEST_US)
        self.is_plausible = not wrong
        if wrong:
            sheet.errors.append(codes.OUT_OF_RANGE)
        if last is not None:
            self.by_pid = found
        return codes.OK

    def scaled_to(self, passed_ns: int) -> Mapping[int, ProcessBusyTime] | None:
        """Return what was found, for an account that counts by podgpu's own time.

        Of several processes that the driver finds at work all the time, each has a part of the time
        that its samples span. That may be longer than the time from look to look, since samples lie
        up to a second before a look: what is too much waits for the next look.

        Args:
            passed_ns: the time since the look before.

        Returns:
            As `by_pid`, and no more than `passed_ns` in all; None also where some of it can't be
            true: then nobody knows what that process did, nor how busy the GPU was.
        """
        if self.by_pid is None or not self.is_plausible:
            return None
        whole = scale_to_fit(self.by_pid, self._span_ns)
        for pid, entry in self._rest.items():
            later = whole.get(pid)
            whole[pid] = (
                entry
                if later is None
                else ProcessBusyTime(entry.busy_ns + later.busy_ns, later.stamp_us)
            )
        fitted = scale_to_fit(whole, passed_ns)
        self._rest = {
            pid: ProcessBusyTime(entry.busy_ns - fitted[pid].busy_ns, entry.stamp_us)
            for pid, entry in whole.items()
            if entry.busy_ns > fitted[pid].busy_ns
        }
        return fitted

    def reset(self) -> None:
        """Start anew: the GPU was away, or is not what it was."""
        self._last = self.by_pid = None
        self._rest.clear()

    def _call(self) -> int:
        if self._function is None:
            return codes.FUNCTION_NOT_FOUND
        while True:
            self._count.value = self._size
            code = self._function(self._handle, self._array, ctypes.byref(self._count), self._since)
            if code != codes.INSUFFICIENT_SIZE or self._size >= _ROOM_MOST:
                return code
            self._make_room(min(_ROOM_MOST, max(self._count.value, self._size * 2)))

    def _weighed(self, count: int, most_us: int) -> tuple[dict[int, ProcessBusyTime], int, bool]:
        """Return what each process did, the newest stamp, and whether some can't be true."""
        since = newest = int(self._since.value)
        wrong = False
        found: dict[int, ProcessBusyTime] = {}
        entries = self._array[: min(count, self._size)]
        for entry in sorted(entries, key=lambda one: int(one.timeStamp)):
            stamp, percent, pid = int(entry.timeStamp), int(entry.smUtil), int(entry.pid)
            if stamp <= since:
                continue  # an old one, which the driver hands out again
            if percent > 100 or stamp > most_us:
                wrong = True
                continue
            before = found.get(pid, ProcessBusyTime(0, since))
            busy = percent * (stamp - before.stamp_us) * _PERCENT_US
            found[pid] = ProcessBusyTime(before.busy_ns + busy, stamp)
            newest = max(newest, stamp)
        return found, newest, wrong


def scale_to_fit(
    entries: Mapping[int, ProcessBusyTime], most_ns: int
) -> dict[int, ProcessBusyTime]:
    """Scale busy times down where they come to more than a time, to exactly that."""
    total = sum(entry.busy_ns for entry in entries.values())
    if total <= most_ns:
        return dict(entries)
    order = sorted(entries)
    parts = apportion(max(most_ns, 0), [entries[pid].busy_ns for pid in order])
    return {
        pid: ProcessBusyTime(part, entries[pid].stamp_us)
        for pid, part in zip(order, parts, strict=True)
    }


def _steady(last: Instant, at: Instant) -> bool:
    """Whether the time between two looks is one that the driver can tell of."""
    passed = at.mono_ns - last.mono_ns
    return passed <= HELD_NS and abs(at.wall_ns - last.wall_ns - passed) < STEP_NS
