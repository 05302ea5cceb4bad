"""When what is known of holders is worth writing down for others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import Instant, Snapshot, SourceState

_PATIENCE: Final = 15.0
"""Seconds after which a source that says nothing keeps nobody waiting any more."""


@dataclass(slots=True)
class _Awaited:
    """A source that may name a holder.

    Attributes:
        kind: the source's.
        since: when its silence began to be waited out.
        spoken: it has said something, or was lost.
        over: nobody waits for it any more.
    """

    kind: str
    since: Instant
    spoken: bool = False
    over: bool = False

    def is_another(self, state: SourceState) -> bool:
        """Whether another source has come in its place since."""
        return self.kind != state.kind or (self.spoken and not state.spoken)


class Completeness:
    """Waits until those who could name a holder have spoken, for so long and no longer.

    What is written before would say of a GPU that nobody holds it, only because nobody was asked.
    A source that a reload has added or exchanged is waited for too.

    Args:
        clock: the component's.
        besides: kinds of source that are not waited for.
    """

    def __init__(self, clock: Clock, besides: frozenset[str] = frozenset()) -> None:
        self._clock = clock
        self._besides = besides
        self._began: Instant | None = None
        self._sources: Mapping[str, _Awaited] | None = None

    def begin(self) -> None:
        """Begin to wait, if that has not begun."""
        self._began = self._began or self._clock.now()

    def reached(self, snapshot: Snapshot) -> bool:
        """Whether all has been heard that is waited for, as of this snapshot."""
        now = self._clock.now()
        before = self._sources or {}
        since = now if self._sources is not None else self._began or now
        self._sources = {
            name: self._looked_at(before.get(name), state, since)
            for name, state in snapshot.sources.items()
            if state.kind not in self._besides
        }
        return self.left() <= 0

    def _looked_at(self, known: _Awaited | None, state: SourceState, since: Instant) -> _Awaited:
        if known is None or known.is_another(state):
            known = _Awaited(state.kind, since)
        known.spoken = known.spoken or state.spoken
        known.over = known.over or state.up or self._rest(known.since) <= 0
        return known

    @property
    def over_time(self) -> bool:
        """Whether everybody has had the time to speak, whoever has."""
        return self._rest(self._began or self._clock.now()) <= 0

    def left(self) -> float:
        """Return the seconds for which sources may still keep us waiting; 0 or less for none."""
        if self._sources is None:
            return self._rest(self._began or self._clock.now())
        return max((self._rest(s.since) for s in self._sources.values() if not s.over), default=0)

    def _rest(self, since: Instant) -> float:
        return _PATIENCE - since.seconds_until(self._clock.now())
