"""The only place that reads the machine's clocks."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from pipeline.model import Instant

_STEP_NS: Final = 100_000
"""A change of the offset beyond this is a step of the wall clock. What is less is the time between
the reading of one clock and of the other."""

_READINGS: Final = 8
"""How often the offset is measured to find out whether the wall clock was set."""

_REMEMBERED: Final = 4096
"""How many wall times of others are kept."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Gives moments and waits. Everything that needs time gets one from its context."""

    def now(self) -> Instant:
        """Return the present moment on both clocks. Safe to call from any thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock; steps of the wall clock don't matter."""
        ...


class Offset:
    """The difference of the wall clock and the monotonic clock, nanoseconds.

    Linux slews both clocks alike, so the difference changes only when the wall clock is set. It is
    measured once and kept until it is found to be another. So two moments that this makes differ by
    the same time on both clocks, to the nanosecond, unless the wall clock was set between them.
    """

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def now(self) -> Instant:
        """Return the present moment."""
        mono_ns = time.monotonic_ns()
        found, known = time.time_ns() - mono_ns, self._offset_ns
        if known is None or abs(found - known) > _STEP_NS:
            found = _measured()
            if known is None or abs(found - known) > _STEP_NS:
                self._offset_ns = known = found
        return Instant(mono_ns, mono_ns + known)


def _measured() -> int:
    """Return the offset by the pair of readings with the least time between them."""
    tries = []
    for _ in range(_READINGS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        tries.append((after - before, wall - (before + after) // 2))
    return min(tries)[1]


_OFFSET: Final = Offset()
"""One for the whole process: the moments of all its threads and components fit each other."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Instant:
        """Return the present moment on both clocks."""
        return _OFFSET.now()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock, which is the monotonic one."""
        await asyncio.sleep(seconds)


class WallTimes:
    """Makes moments of wall times that others tell: equal ones of equal times.

    A wall time is put on the monotonic clock by the offset of the moment when it is first heard.
    That is kept: by a newer offset each time, what stayed the same would look changed whenever the
    wall clock is set.

    Args:
        now: the clocks.
    """

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._known: dict[int, Instant] = {}

    def __call__(self, wall_ns: int) -> Instant:
        """Return the moment of a wall time, nanoseconds since the Unix epoch."""
        found = self._known.get(wall_ns)
        if found is None:
            now = self._now()
            found = Instant(wall_ns - now.wall_ns + now.mono_ns, wall_ns)
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[wall_ns] = found
        return found


def boot_id() -> str:
    """Return what identifies this boot of the machine, in which its monotonic clock goes on.

    Empty where the kernel doesn't say.
    """
    try:
        return _BOOT_ID.read_bytes().decode().strip()
    except (OSError, ValueError):
        return ""
