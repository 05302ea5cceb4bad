"""When what is known of holders is worth writing down for others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import Instant, Snapshot, SourceState

_MAX_WAIT: Final = 15.0
"""Seconds after which a source that says nothing keeps nobody waiting any more."""


@dataclass(slots=True)
class _AwaitedSource:
    """A source that may name a holder.

    Attributes:
        kind: the source's.
        since: when its silence began to be waited out.
        has_reported: it has said something, or was lost.
        timed_out: nobody waits for it any more.
    """

    kind: str
    since: Instant
    has_reported: bool = False
    timed_out: bool = False

    def is_another(self, state: SourceState) -> bool:
        """Whether another source has come in its place since."""
        return self.kind != state.kind or (self.has_reported and not state.has_reported)


class HolderCompleteness:
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
        self._sources: Mapping[str, _AwaitedSource] | None = None

    def begin(self) -> None:
        """Begin to wait, if that has not begun."""
        self._began = self._began or self._clock.now()

    def is_complete(self, snapshot: Snapshot) -> bool:
        """Whether all has been heard that is waited for, as of this snapshot."""
        now = self._clock.now()
        before = self._sources or {}
        since = now if self._sources is not None else self._began or now
        self._sources = {
            name: self._updated(before.get(name), state, since)
            for name, state in snapshot.sources.items()
            if state.kind not in self._besides
        }
        return self.seconds_left() <= 0

    def _updated(
        self, known: _AwaitedSource | None, state: SourceState, since: Instant
    ) -> _AwaitedSource:
        if known is None or known.is_another(state):
            known = _AwaitedSource(state.kind, since)
        known.has_reported = known.has_reported or state.has_reported
        known.timed_out = known.timed_out or state.up or self._rest(known.since) <= 0
        return known

    @property
    def has_timed_out(self) -> bool:
        """Whether everybody has had the time to speak, whoever has."""
        return self._rest(self._began or self._clock.now()) <= 0

    def seconds_left(self) -> float:
        """Return the seconds for which sources may still keep us waiting; 0 or less for none."""
        if self._sources is None:
            return self._rest(self._began or self._clock.now())
        return max(
            (self._rest(s.since) for s in self._sources.values() if not s.timed_out), default=0
        )

    def _rest(self, since: Instant) -> float:
        return _MAX_WAIT - since.seconds_until(self._clock.now())
