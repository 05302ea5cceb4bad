"""Reading records in their order, over all segments."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.delivery.queue.counters import FaultLog
from pipeline.delivery.queue.disk.record_format import SEGMENT_SIZE
from pipeline.delivery.queue.disk.retry_budget import RetryBudget
from pipeline.delivery.queue.disk.segment_reader import FoundRecord, SegmentFile, find_record
from pipeline.delivery.queue.disk.segments import Segment, SegmentList
from pipeline.delivery.queue.error_reasons import is_resource_shortage, reason_of, text_of


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Between two records.

    Attributes:
        segment: number of the segment.
        offset: bytes of it that lie before.
        position: points that lie before, over all segments.
        record: number of the next record.
    """

    segment: int
    offset: int
    position: int
    record: int


def first_record_offset(segment: Segment) -> int:
    """Return where the first record stands; with a broken header that has to be searched for."""
    return SEGMENT_SIZE if segment.header_valid else 0


class SegmentMissingError(Exception):
    """A segment isn't there any more.

    Attributes:
        index: which one of the shelf.
    """

    def __init__(self, index: int) -> None:
        super().__init__(f"segment {index} is missing")
        self.index = index


class SegmentReader:
    """Where the next record is to be taken.

    Args:
        segments: the segments.
        position: where to begin.
        folder: where the segments are.
        fault_log: where it is noted that the disk can't be read.
        retry_budget: with such a disk.
    """

    def __init__(
        self,
        segments: SegmentList,
        position: ReadPosition,
        folder: Path,
        fault_log: FaultLog,
        retry_budget: RetryBudget,
    ) -> None:
        self.position = position
        self._segments = segments
        self._folder = folder
        self._fault_log = fault_log
        self._retry_budget = retry_budget
        self._file: SegmentFile | None = None
        self._failing_segment: int | None = None
        self._seen: tuple[ReadPosition, int, FoundRecord | None] | None = None

    def oldest_ns(self, end: int) -> int | None:
        """Return when the next record was made, if there is one.

        If it can't be read now, that of the record that was there before: the next `peek` tells.
        """
        tried = self._retry_budget.is_failing
        if not tried and (self._seen is None or self._seen[:2] != (self.position, end)):
            try:
                found = self.peek(end, room=-1)  # which may change the place
                self._seen = self.position, end, found
            except SegmentMissingError:
                return None
            except OSError:
                pass
        return self._seen[2].header.created_ns if self._seen and self._seen[2] else None

    def peek(self, end: int, room: int | None) -> FoundRecord | None:
        """Return the next record, and leave it.

        Args:
            end: points before the end of all.
            room: bytes that it may have; one that is larger has no body. None for any.

        Raises:
            MissingError: its segment is not there.
            OSError: it can't be read now; that it never can be is known after a while.
        """
        index = self._segments.index(self.position.segment)
        while index < len(self._segments):
            segment = self._segments[index]
            if segment.number != self.position.segment:
                self._go(segment.number, first_record_offset(segment))
            if self.position.offset < segment.size:
                span = self.position.position, self._segments.first_after(index, end)
                found = self._find(index, span, room)
                if found:
                    return found
                # So that a long piece of rubbish is searched once.
                self._go(segment.number, segment.size)
            index += 1
        return None

    def advance(self, found: FoundRecord) -> ReadPosition:
        """Go on behind a record; returns where it stands."""
        head = found.header
        before = ReadPosition(found.segment, found.offset, head.position, head.number)
        self.position = ReadPosition(
            found.segment, found.end, head.position + head.points, head.number + 1
        )
        return before

    def skip_to(self, position: int) -> None:
        """Take it that there is nothing before a position."""
        self.position = replace(self.position, position=position)

    def close_segment(self, segment: int) -> None:
        """Close a segment, which is removed: as long as it is open it takes room on the disk."""
        if self._file is not None and self._file.number == segment:
            self.close()

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _find(self, index: int, span: tuple[int, int], room: int | None) -> FoundRecord | None:
        patience, segment = self._retry_budget, self._segments[index]
        try:
            file = self._open(index)
            file.lenient |= patience.is_exhausted
            found = find_record(file, self.position.offset, segment.size, span, room)
        except OSError as error:
            if is_resource_shortage(error):
                raise
            if not patience.is_exhausted:
                patience.record_failure()
                raise
            self._give_up(segment.number, error)
            patience.record_success()
            return None
        if file.error is not None:
            self._give_up(segment.number, file.error)
            file.error = None
        patience.record_success()
        self._fault_log.record_recovery("read", f"the queue in {self._folder} can be read again")
        return found

    def _give_up(self, segment: int, error: OSError) -> None:
        self._fault_log.count_fault("read", reason_of(error))
        if segment != self._failing_segment:
            self._failing_segment = segment
            self._fault_log.add_note(
                f"a part of the queue in {self._folder} still cannot be read: {text_of(error)}; "
                "what was in it is lost and counted. Look after that disk"
            )

    def _go(self, segment: int, offset: int) -> None:
        self.position = replace(self.position, segment=segment, offset=offset)

    def _open(self, index: int) -> SegmentFile:
        segment = self._segments[index]
        if self._file is None or self._file.number != segment.number:
            self.close()
            try:
                self._file = SegmentFile(os.fspath(segment.path), segment.number)
            except (FileNotFoundError, NotADirectoryError):
                raise SegmentMissingError(index) from None
        return self._file
