"""One pass through a recording, which is read in a thread."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.model import Envelope, Instant
from pipeline.recording import Header, RecordingReader, shifted
from sources.replay.time_mapping import Timeline

_BATCH_EVENTS: Final = 16
"""Events that are read at a time: a few seconds of a recording."""


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
