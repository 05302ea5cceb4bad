"""One pass through a recording, which is read in a thread."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.model import NS, Envelope, Instant
from pipeline.recording import Header, RecordingReader, shifted

_BATCH_EVENTS: Final = 16
"""Events that are read at a time: a few seconds of a recording."""


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


class ReplayPass:
    """Reads a recording. The first read opens the file; `close` may be called at any time.

    A cancelled `asyncio.to_thread` leaves its thread running, so `close` can be called while a
    thread is opening or reading the file. Then that thread closes it.

    Attributes:
        timeline: converts times; set by the first read.
        last: the recorded time of the last event that was read; at first the recording's start.

    Args:
        path: the recording.
        make_timeline: creates the timeline of a recording.
    """

    timeline: Timeline
    last: Instant

    def __init__(self, path: Path, make_timeline: Callable[[Header], Timeline]) -> None:
        self._path = path
        self._make_timeline = make_timeline
        self._reader: RecordingReader | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def reader(self) -> RecordingReader:
        """The reader, after the first read."""
        if self._reader is None:
            raise RuntimeError("the recording has not been read yet")
        return self._reader

    def read(self) -> list[Envelope]:
        """Return the next events, with times of the replay; an empty list at the end. Blocks.

        Raises:
            OSError: the file cannot be opened or read.
            RecordingError: it is not a recording, or damaged.
        """
        try:
            with self._lock:
                return [] if self._closed else self._next()
        finally:
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the file; if a thread is reading it, that thread closes it."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            if self._reader is not None:
                self._reader.close()
            self._lock.release()

    def _next(self) -> list[Envelope]:
        if self._reader is None:
            self._reader = RecordingReader(self._path)
            self.last = self._reader.header.started
            self.timeline = self._make_timeline(self._reader.header)
        batch = list(itertools.islice(self._reader, _BATCH_EVENTS))
        self.last = max([self.last, *(envelope.at for envelope in batch)])
        return [self._moved(envelope) for envelope in batch]

    def _moved(self, envelope: Envelope) -> Envelope:
        move, stretch = self.timeline.move, self.timeline.stretch
        event = shifted(envelope.event, move, stretch)
        return Envelope(envelope.source, envelope.kind, 0, move(envelope.at), event)
