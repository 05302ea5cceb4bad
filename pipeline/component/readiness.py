"""Decides when podgpu knows all holders, so that sinks may write them for other programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.base.clock import Clock
from pipeline.model import Instant, Snapshot, SourceState

_MAX_WAIT: Final = 15.0
"""Seconds to wait for the first report of a source."""


@dataclass(slots=True)
class _AwaitedSource:
    """A source that can report a holder.

    Attributes:
        kind: kind of the source.
        since: when the wait for the source started.
        has_reported: whether the source has emitted an event, or was lost.
        settled: whether the wait for the source is over.
    """

    kind: str
    since: Instant
    has_reported: bool = False
    settled: bool = False

    def is_another(self, state: SourceState) -> bool:
        """Return whether a reload has replaced this source by another one of the same name."""
        return self.kind != state.kind or (self.has_reported and not state.has_reported)


class HolderCompleteness:
    """Waits until all sources that can report holders are up, for at most 15 s for each source.

    A result that is written earlier would show a GPU as free only because a source has not reported
    yet. This includes sources that a reload adds or replaces.

    Args:
        clock: the component's clock.
        besides: kinds of source that are not waited for.
    """

    def __init__(self, clock: Clock, besides: frozenset[str] = frozenset()) -> None:
        self._clock = clock
        self._besides = besides
        self._began: Instant | None = None
        self._sources: Mapping[str, _AwaitedSource] | None = None

    def begin(self) -> None:
        """Start the time to wait. Later calls have no effect."""
        self._began = self._began or self._clock.now()

    def is_complete(self, snapshot: Snapshot) -> bool:
        """Update the sources from a snapshot; return whether the wait is over for all of them."""
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
        known.settled = known.settled or state.up or self._rest(known.since) <= 0
        return known

    @property
    def has_timed_out(self) -> bool:
        """Whether 15 s have passed since `begin`, whether or not sources have reported."""
        return self._rest(self._began or self._clock.now()) <= 0

    def seconds_left(self) -> float:
        """Return the seconds left to wait for sources; 0 or less if the wait is over."""
        if self._sources is None:
            return self._rest(self._began or self._clock.now())
        return max(
            (self._rest(s.since) for s in self._sources.values() if not s.settled), default=0
        )

    def _rest(self, since: Instant) -> float:
        return _MAX_WAIT - since.seconds_until(self._clock.now())
