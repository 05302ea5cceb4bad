"""When what is known of holders is worth writing down for others."""

from typing import Final

from pipeline.clock import Clock
from pipeline.model import Instant, Snapshot

_PATIENCE: Final = 15.0
"""Seconds after which a source that says nothing keeps nobody waiting any more."""


class Completeness:
    """Waits until those who could name a holder have spoken, for so long and no longer.

    What is written before would say of a GPU that nobody holds it, only because nobody was asked.

    Args:
        clock: the component's.
        besides: kinds of source that are not waited for.
    """

    def __init__(self, clock: Clock, besides: frozenset[str] = frozenset()) -> None:
        self._clock = clock
        self._besides = besides
        self._began: Instant | None = None
        self._complete = False

    def begin(self) -> None:
        """Begin to wait, if that has not begun."""
        self._began = self._began or self._clock.now()

    def reached(self, snapshot: Snapshot) -> bool:
        """Whether all has been heard that is waited for; once so, it stays so."""
        if not self._complete:
            self._complete = self.left() <= 0 or all(
                state.up for state in snapshot.sources.values() if state.kind not in self._besides
            )
        return self._complete

    def left(self) -> float:
        """Return the seconds for which sources may still keep us waiting."""
        now = self._clock.now()
        return _PATIENCE - (self._began or now).seconds_until(now)
