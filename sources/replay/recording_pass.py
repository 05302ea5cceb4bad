"""One pass through a recording."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.model import NS, Envelope, Event, Instant
from pipeline.recording import RecordingParser, shifted
from sources.replay.continuation import Continuation

_BATCH_EVENTS: Final = 16
"""How many events are parsed in one step: a few seconds of a recording."""


class ReplayPass(RecordingParser):
    """Parses a recording, and converts the times of its events.

    Monotonic times are always moved to the present, so that ages and expiry are correct. Times
    after the recording's start are scaled by the speed. Earlier times are moved but not scaled. The
    start of a pod, or of what else existed before the recording, is the same in all passes.

    Args:
        path: path of the recording, for messages.
        began: time at which the pass started.
        speed: recorded seconds per second of the replay.
        continuation: what continues from pass to pass.
        original: whether wall times stay as recorded.
    """

    def __init__(
        self,
        path: Path,
        began: Instant,
        speed: float,
        continuation: Continuation,
        *,
        original: bool,
    ) -> None:
        super().__init__(path)
        self._began = began
        self._continuation = continuation
        self._first_began: Instant | None = None
        self._speed = speed
        self._original = original
        self._last_at: Instant | None = None
        self._known = began, began

    def take(self, events: Iterator[Envelope]) -> list[Envelope]:
        """Return the next few events, with times of the replay; empty if there are no more.

        Blocking: parsing takes time.

        Raises:
            RecordingError: the file is not a recording, or is damaged.
        """
        batch = list(itertools.islice(events, _BATCH_EVENTS))
        if batch:
            self._last_at = max([self._last_at or self.header.started, *(one.at for one in batch)])
            if self._first_began is None:
                started, began = self.header.started, self._began
                self._first_began = self._continuation.begin_pass(started, began)
        return [
            Envelope(one.source, one.kind, 0, self._move(one.at), self._event(one)) for one in batch
        ]

    def _event(self, envelope: Envelope) -> Event:
        recorded = envelope.event
        moved = shifted(recorded, self._move, self._stretch, self._move_start)
        return self._continuation.continued(envelope.source, recorded, moved)

    def end(self) -> Instant:
        """Return when the next pass starts; valid after all events were taken.

        A pass takes at least one second, so that a recording without events is not replayed in a
        busy loop.
        """
        started = self.header.started
        span_ns = max(NS, self._scaled((self._last_at or started).mono_ns - started.mono_ns))
        return Instant(self._began.mono_ns + span_ns, self._began.wall_ns + span_ns)

    def _move(self, instant: Instant) -> Instant:
        known, moved = self._known
        # Adjacent readings share one `Instant` object; sharing the result saves memory.
        if instant is not known:
            moved = self._moved(instant, self._began)
            self._known = instant, moved
        return moved

    def _move_start(self, instant: Instant) -> Instant:
        """Convert a moment since when something has existed."""
        if self._first_began is None or instant.mono_ns >= self.header.started.mono_ns:
            return self._move(instant)
        return self._moved(instant, self._first_began)

    def _moved(self, instant: Instant, began: Instant) -> Instant:
        started = self.header.started
        mono_ns = began.mono_ns + self._scaled(instant.mono_ns - started.mono_ns)
        wall_ns = began.wall_ns + self._scaled(instant.wall_ns - started.wall_ns)
        return Instant(mono_ns, instant.wall_ns if self._original else wall_ns)

    def _stretch(self, good_for_ns: int) -> int:
        """Return for how long an event is valid in the replay: longer if the replay is slow.

        It is never shorter than recorded, because podgpu does not process events any faster.
        """
        return max(good_for_ns, round(good_for_ns / self._speed))

    def _scaled(self, elapsed_ns: int) -> int:
        if elapsed_ns <= 0 or self._speed == 1:
            return elapsed_ns
        return round(elapsed_ns / self._speed)
