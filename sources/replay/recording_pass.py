"""One pass through a recording."""

import itertools
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from pipeline.model import NS, Envelope, Instant
from pipeline.recording import RecordingParser, shifted

_BATCH_EVENTS: Final = 16
"""Events that are parsed at a time: a few seconds of a recording."""


class Timeline:
    """The times of one pass through a recording.

    Monotonic times are always moved to the present, so that ages and expiry are correct. Times
    before the recording's start, such as the start of a pod, are moved but not scaled.

    Args:
        recorded: when the recording started.
        began: when the pass started.
        speed: recorded seconds per second of the replay.
        original: whether wall times stay as recorded.
    """

    def __init__(self, recorded: Instant, began: Instant, speed: float, *, original: bool) -> None:
        self._recorded = recorded
        self._began = began
        self._speed = speed
        self._original = original
        self._last = recorded, self._moved(recorded)

    def move(self, instant: Instant) -> Instant:
        """Return the time of a recorded moment in this pass."""
        known, moved = self._last
        # Adjacent readings share one `Instant` object; sharing the result saves memory.
        if instant is not known:
            moved = self._moved(instant)
            self._last = instant, moved
        return moved

    def stretch(self, good_for_ns: int) -> int:
        """Return a scaled `good_for_ns`: longer in a slow replay, but never shorter.

        A fast replay does not make podgpu process events any faster.
        """
        return max(good_for_ns, round(good_for_ns / self._speed))

    def end(self, last: Instant) -> Instant:
        """Return when the next pass starts, if `last` is the last recorded time.

        A pass takes at least one second, so that an empty recording does not cause a busy loop.
        """
        span_ns = max(NS, self._scaled(last.mono_ns - self._recorded.mono_ns))
        return Instant(self._began.mono_ns + span_ns, self._began.wall_ns + span_ns)

    def _moved(self, instant: Instant) -> Instant:
        mono_ns = self._began.mono_ns + self._scaled(instant.mono_ns - self._recorded.mono_ns)
        if self._original:
            return Instant(mono_ns, instant.wall_ns)
        elapsed_ns = instant.wall_ns - self._recorded.wall_ns
        return Instant(mono_ns, self._began.wall_ns + self._scaled(elapsed_ns))

    def _scaled(self, elapsed_ns: int) -> int:
        if elapsed_ns <= 0 or self._speed == 1:
            return elapsed_ns
        return round(elapsed_ns / self._speed)


class ReplayPass(RecordingParser):
    """Parses a recording, and converts the times of its events.

    Args:
        path: the recording, for messages.
        began: when the pass started.
        speed: recorded seconds per second of the replay.
        original: whether wall times stay as recorded.
    """

    def __init__(self, path: Path, began: Instant, speed: float, *, original: bool) -> None:
        super().__init__(path)
        self._began = began
        self._speed = speed
        self._original = original
        self._last: Instant | None = None

    @cached_property
    def _timeline(self) -> Timeline:
        started = self.header.started
        return Timeline(started, self._began, self._speed, original=self._original)

    def take(self, events: Iterator[Envelope]) -> list[Envelope]:
        """Return the next few events, with times of the replay. Takes time: call it in a thread.

        Raises:
            RecordingError: it is not a recording, or damaged.
        """
        batch = list(itertools.islice(events, _BATCH_EVENTS))
        if not batch:
            return []
        self._last = max([self._last or self.header.started, *(one.at for one in batch)])
        move, stretch = self._timeline.move, self._timeline.stretch
        return [
            Envelope(one.source, one.kind, 0, move(one.at), shifted(one.event, move, stretch))
            for one in batch
        ]

    def end(self) -> Instant:
        """Return when the next pass starts, after all events were taken."""
        return self._timeline.end(self._last or self.header.started)
