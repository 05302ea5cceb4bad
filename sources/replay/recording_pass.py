"""One pass through a recording, read in a thread."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.model import Envelope, Instant
from pipeline.recording import Header, RecordingReader, shifted
from sources.replay.time_mapping import Timeline

_BATCH: Final = 16
"""Events read at once: a few seconds of a recording."""


class ReplayPass:
    """Opens the file with the first read and closes it whenever that may be.

    A cancelled `asyncio.to_thread` leaves its thread running, so the end of a replay can come while
    a thread is opening or reading the file: then that thread closes it.

    Attributes:
        timeline: how times are moved; set by the first read.
        last: when the last event was recorded that was read; first the recording's start.

    Args:
        path: the recording.
        timed: makes the timeline of a recording.
    """

    timeline: Timeline
    last: Instant

    def __init__(self, path: Path, timed: Callable[[Header], Timeline]) -> None:
        self._path = path
        self._timed = timed
        self._reader: RecordingReader | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def reader(self) -> RecordingReader:
        """The recording, after the first read."""
        if self._reader is None:
            raise RuntimeError("nothing was read yet")
        return self._reader

    def read(self) -> list[Envelope]:
        """Return the next events, moved to the present; none at the end. Blocking.

        Raises:
            OSError: the file can't be opened or read.
            RecordingError: it is not a recording, or damaged.
        """
        try:
            with self._lock:
                return [] if self._closed else self._next()
        finally:
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the file, or let the thread that is reading close it."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            if self._reader is not None:
                self._reader.close()
            self._lock.release()

    def _next(self) -> list[Envelope]:
        if self._reader is None:
            self._reader = RecordingReader(self._path)
            self.last = self._reader.header.started
            self.timeline = self._timed(self._reader.header)
        batch = list(itertools.islice(self._reader, _BATCH))
        self.last = max([self.last, *(known.at for known in batch)])
        return [self._moved(known) for known in batch]

    def _moved(self, known: Envelope) -> Envelope:
        move, stretch = self.timeline.move, self.timeline.stretch
        event = shifted(known.event, move, stretch)
        return Envelope(known.source, known.kind, 0, move(known.at), event)
