"""Reads records in order, across segments."""

import os
from dataclasses import replace
from typing import Final

from pipeline.delivery.queue.disk.segment_reader import FoundRecord, SegmentFile, find_record
from pipeline.delivery.queue.disk.segments import SegmentList
from pipeline.delivery.queue.disk.shared_state import DiskShared, ReadPosition
from pipeline.delivery.queue.error_reasons import SHORTAGE_ERRNOS, reason_of, text_of

MISSING: Final = (FileNotFoundError, NotADirectoryError)
"""Errors of `SegmentReader.peek`: the file of the segment at its position is missing."""


class SegmentReader:
    """Returns the next record of a queue, and moves from segment to segment.

    Args:
        shared: settings and state of the queue.
        segments: the segments.

    Attributes:
        position: where the next record is expected.
    """

    def __init__(self, shared: DiskShared, segments: SegmentList) -> None:
        self.position = ReadPosition(0, 0, 0, 0)
        self._segments = segments
        self._folder = shared.path
        self._fault_log = shared.fault_log
        self._retry_budget = shared.retry_budget
        self._file: SegmentFile | None = None
        self._failing_segment: int | None = None
        self._last_peek: tuple[ReadPosition, int, FoundRecord | None] | None = None

    def oldest_ns(self, end: int) -> int | None:
        """Return when the next record was made; None if there is none.

        If the disk can't be read now, return the time of the record that was found last: the next
        `peek` raises the error.
        """
        failing = self._retry_budget.is_failing
        if not failing and (self._last_peek is None or self._last_peek[:2] != (self.position, end)):
            try:
                found = self.peek(end, room=-1)  # which may change the position
                self._last_peek = self.position, end, found
            except MISSING:
                return None
            except OSError:
                pass
        return (
            self._last_peek[2].header.created_ns if self._last_peek and self._last_peek[2] else None
        )

    def peek(self, end: int, room: int | None) -> FoundRecord | None:
        """Return the next record, but do not move behind it; None if there is none.

        Args:
            end: number of points before the end of the queue.
            room: maximum size of the record in bytes; of a larger record, only the header is
                returned. None for no limit.

        Raises:
            OSError: the record can't be read now, or its file is missing, see `MISSING`. Once the
                retry budget is exhausted, what can't be read is skipped instead.
        """
        index = self._segments.find(self.position.segment)
        while index < len(self._segments):
            segment = self._segments[index]
            if segment.number != self.position.segment:
                self._move_to(segment.number, segment.first_record)
            if self.position.offset < segment.size:
                span = self.position.position, self._segments.first_after(index, end)
                found = self._find(index, span, room)
                if found:
                    return found
                # Move to the end, so that a long stretch of garbage is searched only once.
                self._move_to(segment.number, segment.size)
            index += 1
        return None

    def advance(self, found: FoundRecord) -> ReadPosition:
        """Move behind a record; return where the record is."""
        head = found.header
        before = ReadPosition(found.segment, found.offset, head.position, head.number)
        self.position = ReadPosition(
            found.segment, found.end, head.position + head.points, head.number + 1
        )
        return before

    def close_segment(self, segment: int) -> None:
        """Close a segment that is removed: while it is open, its file still uses the disk."""
        if self._file is not None and self._file.number == segment:
            self.close()

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _find(self, index: int, span: tuple[int, int], room: int | None) -> FoundRecord | None:
        budget, segment = self._retry_budget, self._segments[index]
        try:
            file = self._open(index)
            file.lenient |= budget.is_exhausted
            found = find_record(file, self.position.offset, segment.size, span, room)
        except OSError as error:
            if error.errno in SHORTAGE_ERRNOS or isinstance(error, MISSING):
                raise
            if not budget.is_exhausted:
                budget.record_failure()
                raise
            self._give_up(segment.number, error)
            budget.record_success()
            return None
        if file.error is not None:
            self._give_up(segment.number, file.error)
            file.error = None
        budget.record_success()
        self._fault_log.record_recovery("read", f"the queue in {self._folder} can be read again")
        return found

    def _give_up(self, segment: int, error: OSError) -> None:
        self._fault_log.count_fault("read", reason_of(error))
        if segment != self._failing_segment:
            self._failing_segment = segment
            self._fault_log.add_note(
                f"a part of the queue in {self._folder} still cannot be read: {text_of(error)}; "
                "the points in it are lost and counted. Check the disk"
            )

    def _move_to(self, segment: int, offset: int) -> None:
        self.position = replace(self.position, segment=segment, offset=offset)

    def _open(self, index: int) -> SegmentFile:
        segment = self._segments[index]
        if self._file is None or self._file.number != segment.number:
            self.close()
            self._file = SegmentFile(os.fspath(segment.path), segment.number)
        return self._file
