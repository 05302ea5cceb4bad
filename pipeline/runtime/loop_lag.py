"""How much of the last while the event loop was too busy to let sources speak."""

from collections import deque
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import NS, Instant

_PULSE: Final = 0.5
"""Seconds between two looks at the clock."""

_TOLERATED_NS: Final = NS // 10
"""By how much a look may be late."""

_KEPT_NS: Final = 10 * NS
"""How long a delay counts: sources catch up in less, if the loop lets them."""


class LoopDelay:
    """Measures delays of the event loop, by how late its own timer is.

    Args:
        clock: the runtime's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked: Instant | None = None
        self._delays: deque[tuple[int, int]] = deque()

    async def measure(self) -> None:
        """Wait for the next look, and take it."""
        self._looked = self._clock.now()
        await self._clock.sleep(_PULSE)
        now = self._clock.now()
        if delay := self._delay(now):
            self._delays.append((now.mono_ns, delay))
        self._looked = None

    def delay_ns(self, now: Instant) -> int:
        """Return for how many nanoseconds the loop was busy, of the last ten seconds or longer.

        What should have been heard within some time had so much less of it.
        """
        while self._delays and now.mono_ns - self._delays[0][0] > _KEPT_NS:
            self._delays.popleft()
        return sum(delay for _, delay in self._delays) + self._delay(now)

    def _delay(self, now: Instant) -> int:
        if self._looked is None:
            return 0
        # What has passed since the last look, since nobody knows when in that time it was busy.
        passed = now.mono_ns - self._looked.mono_ns
        return passed if passed > _PULSE * NS + _TOLERATED_NS else 0
