"""The binary format of a segment: a segment header, then records, each after a record header.

All numbers are little-endian; checksums are CRC-32 as in zlib. The checksum of a record header also
covers the segment's number, so that old data of another segment is never taken for a record.

The two highest bits of a record's length are its signal: the kind of message, 0 for the sink's main
one. A podgpu version that does not know signals treats a header with another signal as invalid, and
counts the record as corrupt.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from pipeline.delivery.contract import SIGNALS, Record

VERSION: Final = 1
MARKER: Final = b"\xf5rec"
_LENGTH_BITS: Final = 30
MAX_RECORD_BYTES: Final = (1 << _LENGTH_BITS) - 1
"""Maximum bytes of a record."""

MAX_NUMBER: Final = 1 << 62
"""Maximum of a number, a position or a count of points: the sum of two fits into 64 bits."""

_MAGIC: Final = b"podgpu\xf5q"
_SEGMENT: Final = struct.Struct("<8sIQQQ")  # magic, version, number, position, record number
_RECORD: Final = struct.Struct("<4sIQQQqI")  # marker, length, points, number, position, made, CRC
_CRC: Final = struct.Struct("<I")
SEGMENT_SIZE: Final = _SEGMENT.size + _CRC.size
RECORD_SIZE: Final = _RECORD.size + _CRC.size
_MAX_CREATED_NS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment.

    Attributes:
        version: version of the format.
        number: number of the segment, as in its file name.
        position: number of points before its first record, over all segments.
        record: number of its first record, over all segments.
    """

    version: int
    number: int
    position: int
    record: int

    def pack(self) -> bytes:
        """Return the header's bytes."""
        packed = _SEGMENT.pack(_MAGIC, self.version, self.number, self.position, self.record)
        return packed + _CRC.pack(zlib.crc32(packed))


def read_segment_header(data: bytes) -> SegmentHeader | None:
    """Return the header of a segment; None if the bytes are not a valid header."""
    if not _has_crc(data, _SEGMENT.size):
        return None
    magic, version, *numbers = _SEGMENT.unpack_from(data)
    if magic != _MAGIC or max(numbers) > MAX_NUMBER:
        return None
    return SegmentHeader(version, *numbers)


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of a record.

    Attributes:
        length: size of the record in bytes.
        points: number of points in the record.
        number: number of the record, over all segments.
        position: number of points before the record, over all segments.
        created_ns: when the record was made, by the wall clock.
        crc: checksum of the record.
        signal: the kind of message that the record belongs to.
    """

    length: int
    points: int
    number: int
    position: int
    created_ns: int
    crc: int
    signal: int = 0


def pack_record_header(record: Record, number: int, position: int, segment: int) -> bytes:
    """Return the header of a record in a segment.

    Raises:
        ValueError: the signal is out of range.
    """
    if not 0 <= record.signal < SIGNALS:
        raise ValueError(f"signal {record.signal} is out of range")
    length = record.signal << _LENGTH_BITS | len(record.data)
    created_ns = min(max(record.created_ns, -_MAX_CREATED_NS), _MAX_CREATED_NS - 1)
    crc = zlib.crc32(record.data)
    packed = _RECORD.pack(MARKER, length, record.points, number, position, created_ns, crc)
    return packed + _CRC.pack(zlib.crc32(packed, segment & 0xFFFFFFFF))


def read_record_header(data: bytes, segment: int) -> RecordHeader | None:
    """Return the header of a record in a segment; None if the bytes are not a valid header."""
    if not data.startswith(MARKER) or not _has_crc(data, _RECORD.size, segment & 0xFFFFFFFF):
        return None
    _, packed, points, number, position, created_ns, crc = _RECORD.unpack_from(data)
    length, signal = packed & MAX_RECORD_BYTES, packed >> _LENGTH_BITS
    if not length or not 0 < points <= MAX_NUMBER or max(number, position) > MAX_NUMBER:
        return None
    return RecordHeader(length, points, number, position, created_ns, crc, signal)


def _has_crc(data: bytes, size: int, start: int = 0) -> bool:
    """Return whether the first bytes are followed by their checksum, calculated from `start` on."""
    return data[size : size + _CRC.size] == _CRC.pack(zlib.crc32(data[:size], start))
