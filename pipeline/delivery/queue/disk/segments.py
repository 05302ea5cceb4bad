"""The segments that there are, as far as they are known without reading them."""

import bisect
import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.delivery.queue.disk.folder import segment_numbers
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, VERSION
from pipeline.delivery.queue.disk.segment_reader import SegmentFile
from pipeline.delivery.queue.error_reasons import is_resource_shortage

_PIECE: Final = 256 << 10
_STRANGE: Final = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENODEV,
        errno.ENXIO,
        errno.EPERM,
    }
)
"""What says that a file is none of ours; anything else may be otherwise the next time."""


@dataclass(slots=True)
class Segment:
    """A segment.

    Attributes:
        number: in its name.
        path: where it is.
        first_point: points before its first record.
        size: bytes of it that count.
        header_valid: whether its header is.
    """

    number: int
    path: Path
    first_point: int
    size: int
    header_valid: bool = True


class SegmentList:
    """Segments in their order, and how much room they take."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    def append(self, segment: Segment) -> None:
        """Put a segment at the end."""
        self._segments.append(segment)
        self.size += segment.size

    def grow_last(self, more: int) -> None:
        """Let the last one be larger."""
        self._segments[-1].size += more
        self.size += more

    def remove(self, index: int) -> Segment:
        """Take one out."""
        segment = self._segments.pop(index)
        self.size -= segment.size
        return segment

    def index(self, number: int) -> int:
        """Return where the segment with this number is, or the next one; `len` without any."""
        return bisect.bisect_left(self._segments, number, key=lambda segment: segment.number)

    def first_after(self, index: int, end: int) -> int:
        """Return how many points stand before the segment behind this one; or before the end."""
        if index + 1 == len(self._segments):
            return end
        first = self._segments[index + 1].first_point
        # Never less than its own: the file of another queue, under a name of this one.
        return first if first >= self._segments[index].first_point else end


@dataclass(slots=True)
class FolderScan:
    """What is in a folder.

    Attributes:
        segments: those that can be used.
        disposable: those in which nothing is, or nothing that isn't done with.
        broken: those that say nothing, or in a version that isn't ours.
        error: why one that is broken could not be read; None if all could.
        highest_number: the highest number seen, 0 without any.
        end: points before the end of the last segment.
        next_record: number of the record after the last.
        valid_end: where the last sound record of the last segment ends.
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
    """Look at the headers of all segments, and through the last one; nothing is changed.

    Args:
        folder: where they are.
        oldest: number of the first segment that isn't done with.
        lenient: give up what can't be read.

    Raises:
        OSError: a segment can't be looked at.
    """
    found = FolderScan()
    for number in segment_numbers(folder):
        found.highest_number = number
        path = folder / f"{number:020}.seg"
        try:
            if stat.S_ISREG(path.lstat().st_mode):
                _scan_segment(found, path, number, oldest, lenient)
        except FileNotFoundError:
            continue  # whoever asks without the lock may come when it goes
        except OSError as error:
            if is_resource_shortage(error) or not (lenient or error.errno in _STRANGE):
                raise
            found.broken.append(path)
            if error.errno not in _STRANGE:
                found.error = error
    if found.segments:
        _scan_last(found, found.segments[-1], lenient)
    return found


def _scan_segment(survey: FolderScan, path: Path, number: int, oldest: int, lenient: bool) -> None:
    if number < oldest:
        survey.disposable.append(path)
        return
    file = SegmentFile(os.fspath(path), number, lenient=lenient)
    try:
        size, head = file.size, file.header()
        if head and head.number == number:
            if head.version == VERSION:
                survey.segments.append(Segment(number, path, head.position, size))
            else:
                survey.broken.append(path)
            return
        for _, record, sound in file.iter_records(0, size):
            if sound:
                survey.segments.append(
                    Segment(number, path, record.position, size, header_valid=False)
                )
                return
        (survey.disposable if _empty(file, size) else survey.broken).append(path)
        survey.error = file.error or survey.error
    finally:
        file.close()


def _empty(file: SegmentFile, size: int) -> bool:
    """Whether nothing of the file has come onto the disk before a power cut."""
    if any(any(file.read(start, _PIECE)) for start in range(0, size, _PIECE)):
        return False
    return file.error is None


def _scan_last(survey: FolderScan, last: Segment, lenient: bool) -> None:
    file = SegmentFile(os.fspath(last.path), last.number, lenient=lenient)
    try:
        head = file.header()
        survey.end, survey.valid_end = last.first_point, SEGMENT_SIZE
        survey.next_record = head.record if head and last.header_valid else 0
        for place, record, sound in file.iter_records(
            SEGMENT_SIZE if last.header_valid else 0, last.size
        ):
            # One whose bytes alone are broken was written all the same: it is lost, and counts.
            survey.end = max(survey.end, record.position + record.points)
            survey.next_record = max(survey.next_record, record.number + 1)
            if sound:
                survey.valid_end = place + RECORD_SIZE + record.length
    finally:
        file.close()
