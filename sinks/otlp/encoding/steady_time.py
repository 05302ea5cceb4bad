"""Wall times that never decrease.

The time of a reading is computed from the monotonic clock. To stay near the wall clock, the offset
between the two clocks is compared with each snapshot. If the wall clock is ahead, time follows it
immediately. If it was set back, time runs slower until the wall clock has caught up.
"""

from bisect import bisect_right
from collections import deque
from operator import itemgetter
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
        self._moments: deque[tuple[int, int]] = deque(maxlen=_MAX_MOMENTS)
        self._offset = 0

    @property
    def newest(self) -> int:
        """The wall time of the last update; 0 before the first."""
        return self._moments[-1][1] if self._moments else 0

    def update(self, at: Instant) -> None:
        """Compare the clocks. Earlier readings that are mapped later get a time before `at`.

        Args:
            at: the current time. It has no effect if it is not after the last one.
        """
        offset = at.wall_ns - at.mono_ns
        if not self._moments:
            self._moments.append((at.mono_ns, _clamp(at.wall_ns)))
            self._offset = offset
            return
        newest_mono, newest_wall = self._moments[-1]
        passed = at.mono_ns - newest_mono
        if passed <= 0:
            return
        if abs(offset - self._offset) > _STEP_NS + passed // _DRIFT:
            self.steps += 1
        self._offset = offset
        slowest = newest_wall + passed - passed // _SLOWDOWN
        self._moments.append((at.mono_ns, _clamp(max(at.wall_ns, slowest))))

    def __call__(self, mono_ns: int) -> int:
        """Return the wall time for a monotonic time, in nanoseconds since the Unix epoch.

        A later monotonic time never maps to an earlier wall time. A time after the last update maps
        to the wall time of that update: nothing is read after the snapshot that contains it.
        """
        moments = self._moments
        if mono_ns >= moments[-1][0]:
            return moments[-1][1]
        first_mono, first_wall = moments[0]
        if mono_ns <= first_mono:
            return _clamp(first_wall - (first_mono - mono_ns))
        # Nearly all times are in the last interval.
        after = len(moments) - 1
        if mono_ns < moments[after - 1][0]:
            after = bisect_right(moments, mono_ns, key=itemgetter(0))
        (mono, wall), (next_mono, next_wall) = moments[after - 1], moments[after]
        span, gained = next_mono - mono, next_wall - wall
        if gained >= span and mono_ns > mono:
            # Use the current offset for the whole interval.
            return max(wall, next_wall - (next_mono - mono_ns))
        return wall + (mono_ns - mono) * gained // span

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
        self.timeline = timeline
        self._least = self._most = 0

    def next_message(self) -> None:
        """Begin the next message."""
        self._least = self._most + _MESSAGE_GAP_NS

    def __call__(self, mono_ns: int) -> int:
        """Return the time of a point that was read at this monotonic time."""
        time = self.timeline(mono_ns)
        # Several messages of one moment have times after it, but a reading's age is relative to it.
        oldest = min(self._least, self.timeline.newest) - _MAX_DELAY_NS
        if oldest <= time < self._least:
            time = self._least
        self._most = max(self._most, time)
        return time

    def after_all(self, mono_ns: int) -> int:
        """Return the time of a point that must be sent, however old it is.

        It is never before an earlier point: a slow usage sample may be delivered after many
        readings that are newer.
        """
        time = self._most = max(self.timeline(mono_ns), self._least, self._most)
        return time

    def end(self) -> int:
        """Return a time after all points so far, and begin the next message."""
        time = self._most = self._least
        self.next_message()
        return time


def _clamp(wall_ns: int) -> int:
    return min(max(wall_ns, 0), _MAX_NS)
