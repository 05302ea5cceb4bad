"""The segments of a queue, as far as they are known without reading all records."""

import bisect
import contextlib
import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.disk.folder import segment_numbers
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, VERSION
from pipeline.delivery.queue.disk.segment_reader import SegmentFile
from pipeline.delivery.queue.error_reasons import SHORTAGE_ERRNOS

_PIECE: Final = 256 << 10
_NOT_A_SEGMENT: Final = frozenset(
    (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENODEV, errno.ENXIO, errno.EPERM)
)
"""Errors that show that a file is not a segment; other errors may be temporary."""


@dataclass(slots=True)
class Segment:
    """A segment.

    Attributes:
        number: number of the segment, as in its file name.
        path: path of the file.
        first_point: number of points before its first record, over all segments.
        size: number of bytes of the file that are used.
        header_valid: whether its header is valid.
    """

    number: int
    path: Path
    first_point: int
    size: int
    header_valid: bool = True

    @property
    def first_record(self) -> int:
        """Offset of the first record; 0 if the header is invalid, to search from there."""
        return SEGMENT_SIZE if self.header_valid else 0


class SegmentList(list[Segment]):
    """The segments of a queue, sorted by number."""

    @property
    def size(self) -> int:
        """Number of bytes in all segments."""
        return sum(segment.size for segment in self)

    def find(self, number: int) -> int:
        """Return the index of a segment, or of the first with a higher number; `len` if none."""
        return bisect.bisect_left(self, number, key=lambda segment: segment.number)

    def first_after(self, index: int, end: int) -> int:
        """Return the number of points before the next segment; `end` if this is the last."""
        if index + 1 == len(self):
            return end
        first = self[index + 1].first_point
        # Less than its own position means a file of another queue under a name of this one.
        return first if first >= self[index].first_point else end


@dataclass(slots=True)
class FolderScan:
    """Result of scanning a folder.

    Attributes:
        segments: segments that can be used.
        disposable: paths of segments without data, or with settled records only.
        broken: paths of files that cannot be read, that have no valid header or record, or that
            have an unknown version.
        error: the last error of reading a broken file that may be temporary; None if there was
            none.
        highest_number: highest segment number; 0 if there is no segment.
        end: number of points before the end of the last segment.
        next_record: number of the record after the last one.
        valid_end: byte offset of the end of the last valid record in the last segment.
    """

    segments: list[Segment] = field(default_factory=list)
    disposable: list[Path] = field(default_factory=list)
    broken: list[Path] = field(default_factory=list)
    error: OSError | None = None
    highest_number: int = 0
    end: int = 0
    next_record: int = 0
    valid_end: int = 0


def scan_folder(folder: Path, oldest: int, *, lenient: bool = False) -> FolderScan:
    """Read the headers of all unsettled segments, and all records of the last one; change nothing.

    Args:
        folder: the folder.
        oldest: number of the first segment that is not settled.
        lenient: whether to give up what can't be read, instead of raising an error.

    Raises:
            OSError: a segment can't be read, and `lenient` is not set.
    """
    found = FolderScan()
    for number in segment_numbers(folder):
        found.highest_number = number
        path = folder / f"{number:020}.seg"
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                _scan_segment(found, path, number, oldest, lenient)
        except FileNotFoundError:
            continue  # another program has removed the file
        except OSError as error:
            if error.errno in SHORTAGE_ERRNOS or not (lenient or error.errno in _NOT_A_SEGMENT):
                raise
            found.broken.append(path)
            if error.errno not in _NOT_A_SEGMENT:
                found.error = error
    if found.segments:
        _scan_last(found, found.segments[-1], lenient)
    return found


def _scan_segment(scan: FolderScan, path: Path, number: int, oldest: int, lenient: bool) -> None:
    if number < oldest:
        scan.disposable.append(path)
        return
    with contextlib.closing(SegmentFile(os.fspath(path), number, lenient=lenient)) as file:
        size, head = file.size, file.header()
        if head and head.number == number:
            if head.version == VERSION:
                scan.segments.append(Segment(number, path, head.position, size))
            else:
                scan.broken.append(path)
            return
        for _, record, sound in file.iter_records(0, size):
            if sound:
                scan.segments.append(
                    Segment(number, path, record.position, size, header_valid=False)
                )
                return
        (scan.disposable if _empty(file, size) else scan.broken).append(path)
        scan.error = file.error or scan.error


def _empty(file: SegmentFile, size: int) -> bool:
    """Return whether a file has only zeros: power failed before its data was on disk."""
    if any(any(file.read(start, _PIECE)) for start in range(0, size, _PIECE)):
        return False
    return file.error is None


def _scan_last(scan: FolderScan, last: Segment, lenient: bool) -> None:
    with contextlib.closing(
        SegmentFile(os.fspath(last.path), last.number, lenient=lenient)
    ) as file:
        head = file.header()
        scan.end, scan.valid_end = last.first_point, SEGMENT_SIZE
        scan.next_record = head.record if head and last.header_valid else 0
        for place, record, sound in file.iter_records(last.first_record, last.size):
            # A valid header with a corrupt record: the points were written, and count as lost.
            scan.end = max(scan.end, record.position + record.points)
            scan.next_record = max(scan.next_record, record.number + 1)
            if sound:
                scan.valid_end = place + RECORD_SIZE + record.length
