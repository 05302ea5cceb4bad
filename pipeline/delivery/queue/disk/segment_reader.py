"""Reads one segment in pieces, and skips corrupt parts."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipeline.delivery.queue.disk.record_format import (
    MARKER,
    RECORD_SIZE,
    SEGMENT_SIZE,
    RecordHeader,
    SegmentHeader,
    read_record_header,
    read_segment_header,
)

_PIECE: Final = 256 << 10
_BLOCK: Final = 4096
_MOST_UNREADABLE: Final = 64
"""Number of consecutive unreadable blocks that are tried; a failing disk takes long for each."""


class SegmentFile:
    """A segment that is open for reading. A method that reads raises `OSError` if the disk fails.

    Args:
        path: path of the segment.
        number: number of the segment.
        lenient: whether to read zeros where the disk can't be read, instead of raising an error.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: str, number: int, *, lenient: bool = False) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.number = number
        self.lenient = lenient
        self.error: OSError | None = None
        """The last read error that `lenient` has suppressed."""
        self._unreadable = 0
        self._piece = (0, b"")

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def header(self) -> SegmentHeader | None:
        """Return the segment's header, if it is valid."""
        return read_segment_header(self.read(0, SEGMENT_SIZE))

    def record_header(self, offset: int, size: int) -> RecordHeader | None:
        """Return the record header at an offset; None if invalid, or its record exceeds `size`."""
        head = read_record_header(self.read(offset, RECORD_SIZE), self.number)
        return head if head and offset + RECORD_SIZE + head.length <= size else None

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes at an offset; fewer than `length` at the end of the file.

        If `lenient` is set, blocks that cannot be read are zeros, and `error` is the read error.

        Raises:
            OSError: the disk can't be read, and `lenient` is not set.
        """
        try:
            data = more = os.pread(self._fd, length, offset)
            while more and len(data) < length:
                more = os.pread(self._fd, length - len(data), offset + len(data))
                data += more
        except OSError as error:
            if not self.lenient:
                raise
            self.error = error
        else:
            return data
        return b"".join(self._blocks(offset, min(length, max(self.size - offset, 0))))

    def _blocks(self, offset: int, length: int) -> Iterator[bytes]:
        end = offset + length
        while offset < end:
            step = min(_BLOCK - offset % _BLOCK, end - offset)
            data = b""
            if self._unreadable < _MOST_UNREADABLE:
                try:
                    data = os.pread(self._fd, step, offset)
                    self._unreadable = 0
                except OSError:
                    self._unreadable += 1
            yield data.ljust(step, b"\0")
            offset += step

    def find_marker(self, offset: int, size: int) -> int:
        """Return where the first record marker at or after `offset` starts; -1 if there is none.

        Only the first `size` bytes of the file are searched.
        """
        while offset < size:
            start, data = self._piece
            if not start <= offset <= start + len(data) - len(MARKER):
                start, data = offset, self.read(offset, min(_PIECE, size - offset))
                # Kept for the next search: one marker is often followed by more.
                self._piece = start, data
                if len(data) < len(MARKER):
                    return -1
            found = data.find(MARKER, offset - start)
            if found >= 0:
                return start + found
            offset = start + len(data) - len(MARKER) + 1
        return -1

    def body(self, offset: int, head: RecordHeader) -> bytes | None:
        """Return the record after a header; None if its checksum is wrong."""
        data = self.read(offset + RECORD_SIZE, head.length)
        return data if len(data) == head.length and zlib.crc32(data) == head.crc else None

    def iter_records(self, offset: int, size: int) -> Iterator[tuple[int, RecordHeader, bool]]:
        """Yield each valid record header with its offset, and whether its record is valid."""
        while 0 <= offset <= size - RECORD_SIZE:
            head = self.record_header(offset, size)
            if head is not None:
                sound = self.body(offset, head) is not None
                yield offset, head, sound
                if sound:
                    offset += RECORD_SIZE + head.length
                    continue
            offset = self.find_marker(offset + 1, size)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record in a segment.

    Attributes:
        segment: number of the segment.
        offset: byte offset of its header in the segment.
        header: its header.
        body: its bytes; None if it is larger than the caller's limit.
    """

    segment: int
    offset: int
    header: RecordHeader
    body: bytes | None

    @property
    def end(self) -> int:
        """Offset at which the next record is expected."""
        return self.offset + RECORD_SIZE + self.header.length


def find_record(
    file: SegmentFile, offset: int, size: int, span: tuple[int, int], room: int | None
) -> FoundRecord | None:
    """Return the next valid record; None if there is none.

    After a corrupt header or record, the next marker is searched byte by byte: the length in the
    header can't be trusted.

    Args:
        file: the segment.
        offset: byte offset at which to begin.
        size: byte offset at which the segment ends.
        span: the range of positions within which the record must be; records outside of it are old
            data.
        room: maximum size of the record in bytes; a larger one is returned unchecked and without
            body. None for no limit.
    """
    while 0 <= offset <= size - RECORD_SIZE:
        head = file.record_header(offset, size)
        if head and span[0] <= head.position and head.position + head.points <= span[1]:
            if room is not None and head.length > room:
                return FoundRecord(file.number, offset, head, None)
            if (body := file.body(offset, head)) is not None:
                return FoundRecord(file.number, offset, head, body)
        offset = file.find_marker(offset + 1, size)
    return None
