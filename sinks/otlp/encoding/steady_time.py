"""Wall times that never go back.

The time of a reading is worked out from the monotonic clock. So that it stays near the wall clock,
the distance between the two clocks is looked at with each snapshot. Where the wall clock runs ahead
it is followed at once; where it was set back, time runs slower here until it is caught up with.
"""

from bisect import bisect_right
from collections import deque
from typing import Final

from pipeline.model import NS, Instant

_STEP_NS: Final = NS // 2
"""A change of the clocks' distance beyond this is a step; what is less comes from slewing."""

_DRIFT: Final = 1000
"""A slewed clock gains or loses a 1000th of the time at most; Linux allows half of that."""

_SLOWER: Final = 10
"""A clock that was set back is waited for by running a tenth slower."""

_CLOSE_NS: Final = NS // 10
"""What was read so shortly before the last message is moved behind it. No series is read so often
twice, so that none goes back by it."""

_NEXT_NS: Final = 1_000_000
"""Between one message and the next: Prometheus tells milliseconds apart."""

_LAST_NS: Final = (1 << 63) - 1
"""No time is beyond, nor before 1970: a message has no room for it. A damaged recording may tell of
one."""

_KEPT: Final = 1024
"""Moments that are remembered, for readings that come late."""


class WallTimeline:
    """Maps the monotonic clock to wall times.

    Attributes:
        steps: how often the wall clock was set by more than half a second.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._mono: deque[int] = deque(maxlen=_KEPT)
        self._wall: deque[int] = deque(maxlen=_KEPT)
        self._distance = 0

    @property
    def newest(self) -> int:
        """The wall time of the last moment that was looked at; 0 before the first."""
        return self._wall[-1] if self._wall else 0

    def update(self, at: Instant) -> None:
        """Compare the clocks. What was read before `at` and is mapped later gets a time before it.

        Args:
            at: the present moment; one that isn't after the last one changes nothing.
        """
        distance = at.wall_ns - at.mono_ns
        if not self._mono:
            self._mono.append(at.mono_ns)
            self._wall.append(_within(at.wall_ns))
            self._distance = distance
            return
        passed = at.mono_ns - self._mono[-1]
        if passed <= 0:
            return
        if abs(distance - self._distance) > _STEP_NS + passed // _DRIFT:
            self.steps += 1
        self._distance = distance
        slowest = self._wall[-1] + passed - passed // _SLOWER
        self._mono.append(at.mono_ns)
        self._wall.append(_within(max(at.wall_ns, slowest)))

    def __call__(self, mono_ns: int) -> int:
        """Return the wall time of a moment, nanoseconds since the Unix epoch.

        For two moments, the later one never has the earlier time. One that is later than all that
        were looked at has the time of the last: nothing was read after the snapshot it stands in.
        """
        monos, walls = self._mono, self._wall
        newest = monos[-1]
        if mono_ns >= newest:
            return walls[-1]
        if len(monos) == 1 or mono_ns <= monos[0]:
            return _within(walls[0] - (monos[0] - mono_ns))
        # Nearly all lie in the last gap.
        after = len(monos) - 1
        if mono_ns < monos[after - 1]:
            after = bisect_right(monos, mono_ns)
        before = after - 1
        if mono_ns == monos[before]:  # it has had its time already
            return walls[before]
        span, gained = monos[after] - monos[before], walls[after] - walls[before]
        if gained >= span:
            # The clock as it is now is believed for the whole of the gap.
            return max(walls[before], walls[after] - (monos[after] - mono_ns))
        return walls[before] + (mono_ns - monos[before]) * gained // span

    def start(self, moment: Instant) -> int:
        """Return the wall time at which a total began to count.

        It is the one that the moment has, the same to the last digit whoever asks and after each
        restart, unless the wall clock was set since: then it is the one that fits its age.
        """
        fits = self(moment.mono_ns)
        return _within(moment.wall_ns) if abs(fits - moment.wall_ns) <= _STEP_NS else fits


class PointOrder:
    """Times of points that don't go back from one message to the next.

    What is read by several readers is not told in the order in which it was read, and a snapshot is
    made after all that is in it. No series goes back for that. But Prometheus has one for a whole
    resource (`target_info`), and refuses a message for which that one would go back. So what was
    read a little before the last message was made has the time right behind that one.

    Args:
        timeline: tells wall times.
    """

    def __init__(self, timeline: WallTimeline) -> None:
        self._timeline = timeline
        self._least = self._most = 0

    def next_message(self) -> None:
        """Begin another message."""
        self._least = self._most + _NEXT_NS

    def __call__(self, mono_ns: int) -> int:
        """Return the time of a point that was read at that moment."""
        time = self._timeline(mono_ns)
        # Messages of one moment run ahead of it; a reading is so old as it is beside the moment.
        oldest = min(self._least, self._timeline.newest) - _CLOSE_NS
        if oldest <= time < self._least:
            time = self._least
        self._most = max(self._most, time)
        return time

    def after_all(self, mono_ns: int) -> int:
        """Return the time of a point that is told however long ago it was read.

        It is never before any point so far: what a slow look at a device found out may come after
        many readings that are younger.
        """
        time = self._most = max(self._timeline(mono_ns), self._least, self._most)
        return time

    def end(self) -> int:
        """Return a time behind all points so far; what comes next is another message."""
        time = self._most = self._least
        self.next_message()
        return time


def _within(wall_ns: int) -> int:
    return min(max(wall_ns, 0), _LAST_NS)
