"""Writer of recordings."""

import zlib
from pathlib import Path
from typing import Final, Self

from pipeline.model import NS, Envelope
from pipeline.recording.errors import RecordingError
from pipeline.recording.event_codec import Encoder
from pipeline.recording.header import Header

LONGEST_LINE: Final = 16 << 20
"""Maximum length of a line in bytes, so that a file cannot fill the reader's memory."""

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS


class RecordingWriter:
    """Writes envelopes to a recording, and flushes them to the file about once per second.

    If the writer is killed, the file can be read up to the last flush. A write blocks: it has some
    hundred bytes per second, which can take time on a slow disk.

    Args:
        path: the file to create; the usual suffix is `.podgpu.gz`.
        header: header of the recording.
        overwrite: whether an existing file is replaced.

    Raises:
        RecordingError: the file cannot be created, or exists and may not be replaced.
    """

    def __init__(self, path: Path, header: Header, *, overwrite: bool = False) -> None:
        self.path = path
        self._encoder = Encoder(header.started)
        self._gzip = zlib.compressobj(level=9, wbits=_GZIP_WBITS)
        self._flushed_ns = header.started.mono_ns
        self._dirty = False
        try:
            self._file = path.open("wb" if overwrite else "xb", buffering=0)
        except FileExistsError as error:
            raise RecordingError(
                f"{path} already exists: choose another name, or replace it (podgpu record -f)"
            ) from error
        except OSError as error:
            raise RecordingError(f"cannot create {path}: {error.strerror}") from error
        try:
            self._put(self._gzip.compress(header.encode()))
            self.flush()
        except RecordingError:
            self._file.close()
            raise

    def write(self, envelope: Envelope) -> None:
        """Add an envelope. `ClockTicked` is not recorded, but flushes if a flush is due.

        Raises:
            RecordingError: the file cannot be written, or the event is too large. What was flushed
                before can be read.
        """
        line = self._encoder.encode(envelope)
        if len(line) > LONGEST_LINE:
            raise RecordingError(
                f"{self.path}: an event of {envelope.source} has {len(line)} bytes, "
                f"more than the maximum of {LONGEST_LINE}"
            )
        if line:
            self._dirty = True
            self._put(self._gzip.compress(line))
        now_ns = envelope.at.mono_ns
        if self._dirty and now_ns - self._flushed_ns >= NS:
            self._flushed_ns = now_ns
            self.flush()

    def flush(self) -> None:
        """Write all envelopes to the file, in a form that can be read.

        Raises:
            RecordingError: the file cannot be written.
        """
        self._put(self._gzip.flush(zlib.Z_SYNC_FLUSH))
        self._dirty = False

    def close(self) -> None:
        """Finish the recording and close the file.

        Raises:
            RecordingError: the file cannot be written; it is closed nevertheless.
        """
        if not self._file.closed:
            try:
                self._put(self._gzip.flush(zlib.Z_FINISH))
            finally:
                self._file.close()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                # An unbuffered file may write only a part. A blocking one never returns None.
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            raise RecordingError(
                f"cannot write to {self.path}: {error.strerror}; "
                "what was recorded before that can be replayed"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
