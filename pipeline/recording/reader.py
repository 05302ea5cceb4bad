"""Reads a recording."""

import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from pipeline.model import Envelope
from pipeline.recording.errors import LineError, NewerFormatError, RecordingError
from pipeline.recording.event_codec import Decoder
from pipeline.recording.header import Header
from pipeline.recording.writer import LONGEST_LINE

_GZIP: Final = 16 + zlib.MAX_WBITS
_CHUNK: Final = 32 << 10
_PIECE: Final = 256 << 10


class RecordingReader:
    """Iterates over the envelopes of a recording, in memory that the file's size doesn't change.

    Blocking; an event loop iterates in a thread.

    Attributes:
        path: the file.
        header: its first line.
        line: how many lines were read.
        truncated: after the last envelope: the end of the file is missing. A writer that was killed
            leaves it so; a line that was cut off is left out.

    Args:
        path: the file.

    Raises:
        OSError: the file can't be opened or read.
        RecordingError: it is not a recording, or one of a newer format. While iterating: it is
            damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self.truncated = False
        self._file = path.open("rb")
        try:
            self._lines = self._split(_inflate(self._file))
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise
        self._decoder = Decoder(self.header.started)

    @property
    def skipped(self) -> Counter[str]:
        """How many events were passed over, by type, since this podgpu doesn't know the type."""
        return self._decoder.skipped

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __iter__(self) -> Iterator[Envelope]:
        return self

    def __next__(self) -> Envelope:
        for text in self._lines:
            try:
                envelope = self._decoder.decode(text)
            except LineError as error:
                raise RecordingError(
                    f"{self.path}: line {self.line} {error}: "
                    "the recording is damaged from there on; record anew"
                ) from error
            if envelope is not None:
                return envelope
        raise StopIteration

    def _read_header(self) -> Header:
        try:
            first = next(self._lines, None)
        except RecordingError as error:
            if self.line:
                raise
            raise RecordingError(_not_one(self.path)) from error
        if first is None:
            if self.truncated:
                raise RecordingError(
                    f"{self.path} ends within its first line: record anew, or copy it anew"
                )
            raise RecordingError(_not_one(self.path))
        try:
            return Header.decode(first)
        except NewerFormatError as error:
            raise RecordingError(f"{self.path}: line 1 {error}") from error
        except LineError as error:
            raise RecordingError(f"{_not_one(self.path)} (line 1 {error})") from error

    def _split(self, pieces: Generator[bytes, None, bool]) -> Iterator[bytes]:
        rest = bytearray()
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                self.truncated = bool(end.value) or bool(rest)
                return
            except zlib.error as error:
                raise RecordingError(
                    f"{self.path}: what follows line {self.line} is damaged: record or copy it anew"
                ) from error
            start = 0
            while (end_at := piece.find(b"\n", start)) >= 0:
                rest += piece[start:end_at]
                start = end_at + 1
                self._check(rest)
                self.line += 1
                yield bytes(rest)
                rest.clear()
            rest += piece[start:]
            self._check(rest)

    def _check(self, text: bytearray) -> None:
        if len(text) > LONGEST_LINE:
            raise RecordingError(
                f"{self.path}: line {self.line + 1} is longer than {LONGEST_LINE} bytes, "
                "which no recorder writes"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _not_one(path: Path) -> str:
    return f"{path} is not a podgpu recording: give the path of a file that `podgpu record` made"


def _inflate(file: BinaryIO) -> Generator[bytes, None, bool]:
    """Yield what a gzip file holds, in pieces of bounded size; return whether its end is missing.

    Not `gzip`: it gives up on a file without an end before it hands out the last of its data.
    """
    inflater = zlib.decompressobj(_GZIP)
    started = ended = False
    while chunk := file.read(_CHUNK):
        if ended and not started:
            chunk = chunk.lstrip(b"\0")
        while chunk:
            started = True
            data = inflater.decompress(chunk, _PIECE)
            chunk = inflater.unconsumed_tail
            if inflater.eof:
                # Another member may follow, as in files that were put together; zeros may pad.
                chunk = inflater.unused_data.lstrip(b"\0")
                inflater = zlib.decompressobj(_GZIP)
                started, ended = False, True
            if data:
                yield data
    while data := inflater.decompress(b"", _PIECE):
        yield data
    return started
