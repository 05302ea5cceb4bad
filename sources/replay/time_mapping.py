"""From the time of a recording to the time of its replay."""

from pipeline.model import NS, Instant


class Timeline:
    """One pass through a recording.

    Monotonic times always move to the present, so that ages and expiry come out right. What lies
    before the recording's start, such as since when a pod holds its GPU, is moved but not
    squeezed: that time went by at its own speed.

    Args:
        recorded: when the recording started.
        began: when the pass started.
        speed: recorded seconds in one of ours.
        original: leave wall times as they were recorded.
    """

    def __init__(self, recorded: Instant, began: Instant, speed: float, *, original: bool) -> None:
        self._recorded = recorded
        self._began = began
        self._speed = speed
        self._original = original
        self._last = recorded, self._moved(recorded)

    def move(self, instant: Instant) -> Instant:
        """Return where a recorded moment lies in this pass."""
        known, moved = self._last
        # Neighbours share their time: so do they afterwards, and take up less memory.
        if instant is not known:
            moved = self._moved(instant)
            self._last = instant, moved
        return moved

    def stretch(self, good_for_ns: int) -> int:
        """Return how long something is good for: longer if slow, never shorter.

        A fast replay doesn't make the machine any faster at handing things on.
        """
        return max(good_for_ns, round(good_for_ns / self._speed))

    def end(self, last: Instant) -> Instant:
        """Return when the next pass starts, if `last` was the last that was recorded.

        A second must pass at least, or an empty recording would keep the machine busy.
        """
        span_ns = max(NS, self._scaled(last.mono_ns - self._recorded.mono_ns))
        return Instant(self._began.mono_ns + span_ns, self._began.wall_ns + span_ns)

    def _moved(self, instant: Instant) -> Instant:
        mono_ns = self._began.mono_ns + self._scaled(instant.mono_ns - self._recorded.mono_ns)
        if self._original:
            return Instant(mono_ns, instant.wall_ns)
        away_ns = instant.wall_ns - self._recorded.wall_ns
        return Instant(mono_ns, self._began.wall_ns + self._scaled(away_ns))

    def _scaled(self, away_ns: int) -> int:
        if away_ns <= 0 or self._speed == 1:
            return away_ns
        return round(away_ns / self._speed)
