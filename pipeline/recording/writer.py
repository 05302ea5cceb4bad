"""Writes a recording."""

import zlib
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pipeline.model import NS, Envelope
from pipeline.recording.errors import RecordingError
from pipeline.recording.event_codec import Encoder
from pipeline.recording.header import Header

LONGEST_LINE: Final = 16 << 20
"""Bytes. A reader takes no longer line, so that a file can't fill its memory."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class RecordingWriter:
    """Writes envelopes as they come, about once a second through to the file.

    A writer that is killed leaves a file that can be read up to the last second. Blocking: what it
    writes is some hundred bytes a second, but on a slow disk that may wait.

    Args:
        path: of the file to make; `.podgpu.gz` is the usual ending.
        header: the first line.
        overwrite: whether a file that is there may go.

    Raises:
        RecordingError: the file can't be made, or is there already.
    """

    def __init__(self, path: Path, header: Header, *, overwrite: bool = False) -> None:
        self.path = path
        self._encoder = Encoder(header.started)
        self._gzip = zlib.compressobj(level=9, wbits=_GZIP)
        self._flushed_ns = header.started.mono_ns
        self._dirty = False
        try:
            self._file = path.open("wb" if overwrite else "xb", buffering=0)
        except FileExistsError as error:
            raise RecordingError(
                f"{path} is there already: choose another name, or replace it (podgpu record -f)"
            ) from error
        except OSError as error:
            raise RecordingError(f"cannot make {path}: {error.strerror}") from error
        try:
            self._put(self._gzip.compress(header.encode()))
            self.flush()
        except RecordingError:
            self._file.close()
            raise

    def write(self, envelope: Envelope) -> None:
        """Add an envelope. `ClockTicked` is not recorded, but lets what waits go to the file.

        Raises:
            RecordingError: the file can't be written to; what was written before can be read.
        """
        line = self._encoder.encode(envelope)
        if len(line) > LONGEST_LINE:
            raise RecordingError(
                f"{self.path}: an event of {envelope.source} takes {len(line)} bytes, "
                f"more than the {LONGEST_LINE} of a line"
            )
        if line:
            self._dirty = True
            self._put(self._gzip.compress(line))
        now_ns = envelope.at.mono_ns
        if self._dirty and now_ns - self._flushed_ns >= NS:
            self._flushed_ns = now_ns
            self.flush()

    def flush(self) -> None:
        """Let everything that was written so far be readable in the file."""
        self._put(self._gzip.flush(zlib.Z_SYNC_FLUSH))
        self._dirty = False

    def close(self) -> None:
        """End the recording."""
        if not self._file.closed:
            try:
                self._put(self._gzip.flush(zlib.Z_FINISH))
            finally:
                self._file.close()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                # An unbuffered file may take a part; it never answers None, being a blocking one.
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            raise RecordingError(
                f"cannot write to {self.path}: {error.strerror}; "
                "what was recorded before that can be played"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
