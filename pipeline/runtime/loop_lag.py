"""Measures for how long the event loop was recently too busy to run sources."""

from collections import deque
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import NS, Instant

_PULSE: Final = 0.5
"""Seconds that the timer sleeps."""

_TOLERATED_NS: Final = NS // 10
"""How late the timer may be."""

_KEPT_NS: Final = 10 * NS
"""How long a delay counts: sources catch up in less time once the loop is free."""


class LoopDelay:
    """Measures delays of the event loop by the lateness of a timer.

    Args:
        clock: the runtime's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer_started: Instant | None = None
        self._delays: deque[tuple[int, int]] = deque()

    async def measure(self) -> None:
        """Sleep for one interval of the timer, and record how late it was."""
        self._timer_started = self._clock.now()
        await self._clock.sleep(_PULSE)
        now = self._clock.now()
        if delay := self._delay(now):
            self._delays.append((now.mono_ns, delay))
        self._timer_started = None

    def delay_ns(self, now: Instant) -> int:
        """Return for how many nanoseconds the loop was busy in the last ten seconds.

        A delay that has not ended yet counts from its start, and can be longer. Sources had that
        much less time to report.
        """
        while self._delays and now.mono_ns - self._delays[0][0] > _KEPT_NS:
            self._delays.popleft()
        return sum(delay for _, delay in self._delays) + self._delay(now)

    def _delay(self, now: Instant) -> int:
        if self._timer_started is None:
            return 0
        # All of the time counts, because it is unknown which part of it the loop was busy.
        passed = now.mono_ns - self._timer_started.mono_ns
        return passed if passed > _PULSE * NS + _TOLERATED_NS else 0
