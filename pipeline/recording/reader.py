"""Reader of recordings."""

import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

from pipeline.model import Envelope
from pipeline.recording.errors import LineError, NewerFormatError, RecordingError
from pipeline.recording.event_codec import Decoder
from pipeline.recording.header import Header
from pipeline.recording.writer import LONGEST_LINE

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_CHUNK_BYTES: Final = 32 << 10
_MAX_PIECE_BYTES: Final = 256 << 10


class RecordingReader:
    """Iterates over the envelopes of a recording. Memory use does not depend on the file's size.

    It blocks; use a thread in an event loop.

    Attributes:
        path: the file.
        header: the header.
        line: how many lines were read.
        truncated: after the last envelope: whether the end of the file is missing, as after a
            writer was killed. An incomplete last line is ignored.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be opened or read.
        RecordingError: it is not a recording, or has a newer format. While iterating: the
            recording is damaged.
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
        """How many events of unknown types were skipped, by type."""
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
                    "the recording is damaged from there on; record it again"
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
            raise RecordingError(_not_a_recording(self.path)) from error
        if first is None:
            if self.truncated:
                raise RecordingError(
                    f"{self.path} ends within its first line: record or copy it again"
                )
            raise RecordingError(_not_a_recording(self.path))
        try:
            return Header.decode(first)
        except NewerFormatError as error:
            raise RecordingError(f"{self.path}: line 1 {error}") from error
        except LineError as error:
            raise RecordingError(f"{_not_a_recording(self.path)} (line 1 {error})") from error

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
                    f"{self.path}: damaged after line {self.line}: record or copy it again"
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
                f"{self.path}: line {self.line + 1} is longer than {LONGEST_LINE} bytes: "
                "the file is damaged; record or copy it again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _not_a_recording(path: Path) -> str:
    return f"{path} is not a podgpu recording: give the path of a file that `podgpu record` wrote"


def _inflate(file: BinaryIO) -> Generator[bytes, None, bool]:
    """Yield the contents of a gzip file in limited pieces; return whether its end is missing.

    `gzip` is not used, because it fails on a truncated file before it returns the last data.
    """
    inflater = zlib.decompressobj(_GZIP_WBITS)
    started = ended = False
    while chunk := file.read(_CHUNK_BYTES):
        if ended and not started:
            chunk = chunk.lstrip(b"\0")
        while chunk:
            started = True
            data = inflater.decompress(chunk, _MAX_PIECE_BYTES)
            chunk = inflater.unconsumed_tail
            if inflater.eof:
                # Concatenated files have several members; zeros may follow as padding.
                chunk = inflater.unused_data.lstrip(b"\0")
                inflater = zlib.decompressobj(_GZIP_WBITS)
                started, ended = False, True
            if data:
                yield data
    while data := inflater.decompress(b"", _MAX_PIECE_BYTES):
        yield data
    return started
