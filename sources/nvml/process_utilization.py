"""How long each process kept a GPU busy: NVML's process utilisation as busy time.

The driver samples which processes run (five times a second on Hopper, at least once a second
according to nvml.h) and keeps the samples for some seconds. A call with a start time returns one
entry per process: its mean utilisation since then, and the time stamp of its last sample. So an
entry counts for the time from the start to its own time stamp, not from call to call.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import NS, Instant
from pipeline.usage import apportion
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.reader_parts import GpuReadings, GrowingArray

LATEST_US: Final = 1_000_000
"""A call continues at most so many microseconds before the last call: older samples of the driver
have been read. Without this bound, a process that starts after a time without samples would also be
credited with that time. A time stamp further in the future is impossible."""

HELD_NS: Final = 13 * NS
"""How long the driver keeps its samples at least: some 70 samples at five per second."""

STEP_NS: Final = NS // 5
"""If wall time and monotonic time between two calls differ by more, the clock was set, and time
stamps before and after cannot be compared."""

_INITIAL_SIZE: Final = 128
_MAX_SIZE: Final = 1 << 14
_PERCENT_US: Final = 10
"""Nanoseconds in one percent of a microsecond."""


@dataclass(frozen=True, slots=True)
class ProcessBusyTime:
    """The busy time of a process since the last call.

    Attributes:
        busy_ns: how long it kept the GPU busy.
        stamp_us: when the driver last sampled it, by the wall clock, in microseconds.
    """

    busy_ns: int
    stamp_us: int


class Utilization:
    """Queries the process utilisation of one GPU; each call continues from the last.

    Args:
        nvml: the library.
        handle: NVML's handle of the GPU.

    Attributes:
        by_pid: the busy times of the last call by pid; a process without an entry did no work. None
            if they do not cover all the time since the call before.
        is_plausible: whether all values of the last call are possible.
    """

    def __init__(self, nvml: Library, handle: Handle) -> None:
        self._function = nvml.function("nvmlDeviceGetProcessUtilization")
        self._handle = handle
        self._array = GrowingArray(library.ProcessUtilization, _INITIAL_SIZE, _MAX_SIZE)
        self._since = ctypes.c_ulonglong()
        self._last: Instant | None = None
        self.by_pid: Mapping[int, ProcessBusyTime] | None = None
        self.is_plausible = True
        self._span_ns = 0
        self._carried_over: dict[int, ProcessBusyTime] = {}

    def read(self, result: GpuReadings, at: Instant) -> int:
        """Query the busy times since the last call. A `Reader`."""
        self.by_pid = None
        last, self._last = self._last, at
        if last is None or not _is_measurable(last, at):
            # Start now: older samples of the driver do not belong to a known interval.
            self._since.value = at.wall_ns // 1000
            last = None
        code = self._array.fill(
            lambda count, array: self._function(self._handle, array, count, self._since)
        )
        if code not in (codes.OK, codes.NOT_FOUND):
            self._last = None
            return code
        limit_us = at.wall_ns // 1000 + LATEST_US
        since_us = int(self._since.value)
        found, newest, implausible = self._add_up(limit_us)
        self._span_ns = (newest - since_us) * 1000
        self._since.value = max(newest, at.wall_ns // 1000 - LATEST_US)
        self.is_plausible = not implausible
        if implausible:
            result.errors.append(codes.OUT_OF_RANGE)
        if last is not None:
            self.by_pid = found
        return codes.OK

    def scaled_to(self, elapsed_ns: int) -> Mapping[int, ProcessBusyTime] | None:
        """Return the busy times, scaled to the time that passed on podgpu's clock.

        Of several processes that are busy all the time, each gets a part of the time that the
        driver's samples span. This may be longer than the time between two usage samples, since a
        sample of the driver may be up to a second old. The excess is added at the next call.

        Args:
            elapsed_ns: the time since the last usage sample.

        Returns:
            As `by_pid`, and at most `elapsed_ns` in total. None also if a value is impossible: then
            the busy time of its process and of the GPU is unknown.
        """
        if self.by_pid is None or not self.is_plausible:
            return None
        unscaled = scale_to_fit(self.by_pid, self._span_ns)
        for pid, entry in self._carried_over.items():
            later = unscaled.get(pid)
            unscaled[pid] = (
                entry
                if later is None
                else ProcessBusyTime(entry.busy_ns + later.busy_ns, later.stamp_us)
            )
        fitted = scale_to_fit(unscaled, elapsed_ns)
        self._carried_over = {
            pid: ProcessBusyTime(entry.busy_ns - fitted[pid].busy_ns, entry.stamp_us)
            for pid, entry in unscaled.items()
            if entry.busy_ns > fitted[pid].busy_ns
        }
        return fitted

    def reset(self) -> None:
        """Start from zero: the GPU was down or has changed."""
        self._last = self.by_pid = None
        self._carried_over.clear()

    def _add_up(self, limit_us: int) -> tuple[dict[int, ProcessBusyTime], int, bool]:
        """Return busy times by pid, the newest time stamp, and whether a value is impossible."""
        since = newest = int(self._since.value)
        implausible = False
        found: dict[int, ProcessBusyTime] = {}
        for entry in sorted(self._array.entries(), key=lambda one: int(one.timeStamp)):
            stamp, percent, pid = int(entry.timeStamp), int(entry.smUtil), int(entry.pid)
            if stamp <= since:
                continue  # an old entry that the driver returns again
            if percent > 100 or stamp > limit_us:
                implausible = True
                continue
            previous = found.get(pid, ProcessBusyTime(0, since))
            busy = percent * (stamp - previous.stamp_us) * _PERCENT_US
            found[pid] = ProcessBusyTime(previous.busy_ns + busy, stamp)
            newest = max(newest, stamp)
        return found, newest, implausible


def scale_to_fit(
    entries: Mapping[int, ProcessBusyTime], limit_ns: int
) -> dict[int, ProcessBusyTime]:
    """Scale busy times down to a limit if their sum exceeds it."""
    total = sum(entry.busy_ns for entry in entries.values())
    if total <= limit_ns:
        return dict(entries)
    order = sorted(entries)
    parts = apportion(max(limit_ns, 0), [entries[pid].busy_ns for pid in order])
    return {
        pid: ProcessBusyTime(part, entries[pid].stamp_us)
        for pid, part in zip(order, parts, strict=True)
    }


def _is_measurable(last: Instant, at: Instant) -> bool:
    """Return whether the driver's samples cover the time between two calls."""
    elapsed_ns = at.mono_ns - last.mono_ns
    return elapsed_ns <= HELD_NS and abs(at.wall_ns - last.wall_ns - elapsed_ns) < STEP_NS
