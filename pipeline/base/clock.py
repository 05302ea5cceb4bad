"""The only module that reads the machine's clocks."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from pipeline.base.bounded_dict import set_last
from pipeline.model import Instant

_STEP_NS: Final = 100_000
"""A larger change of the offset between the two clocks is a step of the wall clock. A smaller one
is the time between the readings of the clocks."""

_MEASUREMENTS: Final = 8
"""Number of measurements of the offset, to find out whether the wall clock was set."""

_MAX_REMEMBERED: Final = 4096
"""Maximum number of remembered wall times."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Returns the present time, and waits. Components get a clock from their context."""

    def now(self) -> Instant:
        """Return the present time on both clocks. Safe to call from any thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock; steps of the wall clock have no effect."""
        ...


class Offset:
    """The difference between the wall clock and the monotonic clock, in nanoseconds.

    Linux slews both clocks alike, so that the difference changes only when the wall clock is set.
    It is measured once and kept until a step is detected. So the difference of two instants is the
    same on both clocks, to the nanosecond, unless the wall clock was set between them.
    """

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def now(self) -> Instant:
        """Return the present time."""
        mono_ns = time.monotonic_ns()
        offset, kept = time.time_ns() - mono_ns, self._offset_ns
        if kept is None or abs(offset - kept) > _STEP_NS:
            offset = _measure_offset()
            if kept is None or abs(offset - kept) > _STEP_NS:
                self._offset_ns = kept = offset
        return Instant(mono_ns, mono_ns + kept)


def _measure_offset() -> int:
    """Measure the offset; use the pair of readings with the least time between them."""
    tries = []
    for _ in range(_MEASUREMENTS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        tries.append((after - before, wall - (before + after) // 2))
    return min(tries)[1]


_OFFSET: Final = Offset()
"""One object for the whole process, so that all instants in it are comparable."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Instant:
        """Return the present time on both clocks."""
        return _OFFSET.now()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock, which is the monotonic one."""
        await asyncio.sleep(seconds)


class WallTimes:
    """Converts wall times of other programs to instants. Equal wall times give equal instants.

    A wall time is converted with the offset of the moment when it is first seen, and the result is
    kept. With a new offset each time, unchanged data would look changed whenever the wall clock is
    set.

    Args:
        now: returns the present time on both clocks.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._known: dict[int, Instant] = {}

    def __call__(self, wall_ns: int) -> Instant:
        """Return the instant of a wall time, given in nanoseconds since the Unix epoch."""
        offset = self._known.get(wall_ns)
        if offset is None:
            now = self._now()
            offset = Instant(wall_ns - now.wall_ns + now.mono_ns, wall_ns)
            set_last(self._known, wall_ns, offset, _MAX_REMEMBERED)
        return offset


def boot_id() -> str:
    """Return the id of this boot of the machine. The monotonic clock is valid within one boot.

    Empty if the kernel does not report it.
    """
    try:
        return _BOOT_ID.read_bytes().decode().strip()
    except (OSError, ValueError):
        return ""
