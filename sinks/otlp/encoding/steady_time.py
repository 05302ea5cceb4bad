"""Wall times that never decrease.

The time of a reading is computed from the monotonic clock. To stay near the wall clock, the offset
between the two clocks is compared with each snapshot. If the wall clock is ahead, time follows it
immediately. If it was set back, time runs slower until the wall clock has caught up.
"""

from bisect import bisect_right
from collections import deque
from typing import Final

from pipeline.model import NS, Instant

_STEP_NS: Final = NS // 2
"""A larger change of the offset is a step. Smaller ones come from slewing."""

_DRIFT: Final = 1000
"""A slewed clock gains or loses at most 1/1000 of the time; Linux allows half of that."""

_SLOWDOWN: Final = 10
"""While waiting for a clock that was set back, time runs slower by this part: a tenth."""

_MAX_DELAY_NS: Final = NS // 10
"""A point that was read within this time before the last message gets a time after that message.
Series are read less often than this, so that no series goes back in time."""

_MESSAGE_GAP_NS: Final = 1_000_000
"""Time between two messages. Prometheus has a resolution of milliseconds."""

_MAX_NS: Final = (1 << 63) - 1
"""Maximum of a time; the minimum is 1970. Messages have no room for others, and a damaged recording
may contain some."""

_MAX_MOMENTS: Final = 1024
"""How many times are remembered, for late readings."""


class WallTimeline:
    """Maps times of the monotonic clock to wall times.

    Attributes:
        steps: how often the wall clock was set by more than half a second.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._mono: deque[int] = deque(maxlen=_MAX_MOMENTS)
        self._wall: deque[int] = deque(maxlen=_MAX_MOMENTS)
        self._offset = 0

    @property
    def newest(self) -> int:
        """The wall time of the last update; 0 before the first."""
        return self._wall[-1] if self._wall else 0

    def update(self, at: Instant) -> None:
        """Compare the clocks. Earlier readings that are mapped later get a time before `at`.

        Args:
            at: the current time. It has no effect if it is not after the last one.
        """
        offset = at.wall_ns - at.mono_ns
        if not self._mono:
            self._mono.append(at.mono_ns)
            self._wall.append(_clamp(at.wall_ns))
            self._offset = offset
            return
        passed = at.mono_ns - self._mono[-1]
        if passed <= 0:
            return
        if abs(offset - self._offset) > _STEP_NS + passed // _DRIFT:
            self.steps += 1
        self._offset = offset
        slowest = self._wall[-1] + passed - passed // _SLOWDOWN
        self._mono.append(at.mono_ns)
        self._wall.append(_clamp(max(at.wall_ns, slowest)))

    def __call__(self, mono_ns: int) -> int:
        """Return the wall time for a monotonic time, in nanoseconds since the Unix epoch.

        A later monotonic time never maps to an earlier wall time. A time after the last update maps
        to the wall time of that update: nothing is read after the snapshot that contains it.
        """
        monos, walls = self._mono, self._wall
        newest = monos[-1]
        if mono_ns >= newest:
            return walls[-1]
        if len(monos) == 1 or mono_ns <= monos[0]:
            return _clamp(walls[0] - (monos[0] - mono_ns))
        # Nearly all times are in the last interval.
        after = len(monos) - 1
        if mono_ns < monos[after - 1]:
            after = bisect_right(monos, mono_ns)
        before = after - 1
        if mono_ns == monos[before]:  # its wall time is known
            return walls[before]
        span, gained = monos[after] - monos[before], walls[after] - walls[before]
        if gained >= span:
            # Use the current offset for the whole interval.
            return max(walls[before], walls[after] - (monos[after] - mono_ns))
        return walls[before] + (mono_ns - monos[before]) * gained // span

    def start(self, moment: Instant) -> int:
        """Return the wall time at which a total started.

        It is the wall time that `moment` contains: the same for every caller and after each
        restart. But if the wall clock was set since, it is the time that fits the total's age.
        """
        by_age = self(moment.mono_ns)
        return _clamp(moment.wall_ns) if abs(by_age - moment.wall_ns) <= _STEP_NS else by_age


class PointOrder:
    """Assigns times to points, so that they do not go back from one message to the next.

    Several readers deliver readings out of order, and a snapshot is made after all its readings.
    This does not affect single series. But Prometheus keeps one series for a whole resource
    (`target_info`), and rejects a message that would move it back. Therefore a reading from shortly
    before the last message gets a time directly after that message.

    Args:
        timeline: maps monotonic to wall times.
    """

    def __init__(self, timeline: WallTimeline) -> None:
        self._timeline = timeline
        self._least = self._most = 0

    def next_message(self) -> None:
        """Begin the next message."""
        self._least = self._most + _MESSAGE_GAP_NS

    def __call__(self, mono_ns: int) -> int:
        """Return the time of a point that was read at this monotonic time."""
        time = self._timeline(mono_ns)
        # Several messages of one moment have times after it, but a reading's age is relative to it.
        oldest = min(self._least, self._timeline.newest) - _MAX_DELAY_NS
        if oldest <= time < self._least:
            time = self._least
        self._most = max(self._most, time)
        return time

    def after_all(self, mono_ns: int) -> int:
        """Return the time of a point that must be sent, however old it is.

        It is never before an earlier point: a slow usage sample may be delivered after many
        readings that are newer.
        """
        time = self._most = max(self._timeline(mono_ns), self._least, self._most)
        return time

    def end(self) -> int:
        """Return a time after all points so far, and begin the next message."""
        time = self._most = self._least
        self.next_message()
        return time


def _clamp(wall_ns: int) -> int:
    return min(max(wall_ns, 0), _MAX_NS)
