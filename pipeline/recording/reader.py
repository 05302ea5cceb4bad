"""Reader of recordings."""

import itertools
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, Self

from pipeline.model import Envelope
from pipeline.recording.errors import LineError, NewerFormatError, RecordingError
from pipeline.recording.event_codec import Decoder
from pipeline.recording.header import Header
from pipeline.recording.writer import LONGEST_LINE

CHUNK_BYTES: Final = 32 << 10
"""Number of bytes of a file that are read at a time."""

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_MAX_PIECE_BYTES: Final = 256 << 10


class RecordingParser:
    """Parses the bytes of a recording, without I/O. Its memory use does not depend on their number.

    The module `gzip` is not used: on a truncated file it fails before it returns the last data.

    Attributes:
        path: the file, for messages.
        header: the header; set after the first line was parsed.
        line: number of parsed lines.

    Args:
        path: the file, for messages.
    """

    header: Header

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self._inflater = zlib.decompressobj(_GZIP_WBITS)
        self._in_member = self._had_member = False
        self._rest = bytearray()
        self._decoder: Decoder | None = None

    @property
    def skipped(self) -> Counter[str]:
        """Number of skipped events by type. podgpu does not know these types."""
        return self._decoder.skipped if self._decoder is not None else Counter()

    @property
    def truncated(self) -> bool:
        """Whether the end of the file is missing, for example because the writer was killed.

        Valid after all bytes were passed to `events`. An incomplete last line is ignored.
        """
        return self._in_member or bool(self._rest)

    def events(self, data: bytes) -> Iterator[Envelope]:
        """Yield the events in the next bytes of the file. Pass empty bytes at its end.

        Raises:
            RecordingError: the file is not a recording, has a newer format, or is damaged.
        """
        for text in self._split(data):
            if self._decoder is None:
                self.header = self._parse_header(text)
                self._decoder = Decoder(self.header.started)
                continue
            try:
                envelope = self._decoder.decode(text)
            except LineError as error:
                raise RecordingError(
                    f"{self.path}: line {self.line} {error}: "
                    "the recording is damaged from there on; record it again"
                ) from error
            if envelope is not None:
                yield envelope
        if not data and self._decoder is None:
            if self.truncated:
                raise RecordingError(
                    f"{self.path} ends within its first line: record or copy it again"
                )
            raise RecordingError(self._not_a_recording)

    def _parse_header(self, line: bytes) -> Header:
        try:
            return Header.decode(line)
        except NewerFormatError as error:
            raise RecordingError(f"{self.path}: line 1 {error}") from error
        except LineError as error:
            raise RecordingError(f"{self._not_a_recording} (line 1 {error})") from error

    def _split(self, data: bytes) -> Iterator[bytes]:
        try:
            for piece in self._inflate(data):
                *ends, rest = piece.split(b"\n")
                for end in ends:
                    self._extend(end)
                    self.line += 1
                    yield bytes(self._rest)
                    self._rest.clear()
                self._extend(rest)
        except zlib.error as error:
            raise self._damage(f"damaged after line {self.line}") from error

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        """Yield the text in limited pieces. Concatenated files and padding with zeros are valid."""
        if self._had_member and not self._in_member:
            data = data.lstrip(b"\0")
        while data:
            self._in_member = True
            yield self._inflater.decompress(data, _MAX_PIECE_BYTES)
            data = self._inflater.unconsumed_tail
            if self._inflater.eof:
                data = self._inflater.unused_data.lstrip(b"\0")
                self._inflater = zlib.decompressobj(_GZIP_WBITS)
                self._in_member, self._had_member = False, True
        while text := self._inflater.decompress(b"", _MAX_PIECE_BYTES):
            yield text

    def _extend(self, text: bytes) -> None:
        self._rest += text
        if len(self._rest) > LONGEST_LINE:
            raise self._damage(
                f"line {self.line + 1} is longer than {LONGEST_LINE} bytes: the file is damaged"
            )

    def _damage(self, text: str) -> RecordingError:
        if not self.line:
            return RecordingError(self._not_a_recording)
        return RecordingError(f"{self.path}: {text}; record or copy it again")

    @property
    def _not_a_recording(self) -> str:
        return (
            f"{self.path} is not a podgpu recording: give the path of a file that "
            "`podgpu record` wrote"
        )


class RecordingReader(RecordingParser):
    """Reads a file and iterates over its envelopes, once. Blocks.

    Raises:
        OSError: the file cannot be opened or read.
        RecordingError: the file is not a recording, has a newer format, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._all = self._read()
        self._first = list(itertools.islice(self._all, 1))  # the header is parsed before it

    def _read(self) -> Generator[Envelope, None, None]:
        with self.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield from self.events(chunk)
            yield from self.events(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()

    def __iter__(self) -> Iterator[Envelope]:
        return itertools.chain(self._first, self._all)
