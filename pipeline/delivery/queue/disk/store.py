"""The files of a queue: appends records at the end and reads them from the front."""

import contextlib
import errno
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.disk.cursor import CursorFile, CursorState
from pipeline.delivery.queue.disk.folder import CURSOR, KindError, QueueFolder
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, pack_record_header
from pipeline.delivery.queue.disk.record_reader import SegmentReader
from pipeline.delivery.queue.disk.segment_writer import SegmentWriter
from pipeline.delivery.queue.disk.segments import FolderScan, Segment, SegmentList, scan_folder
from pipeline.delivery.queue.disk.shared_state import DiskShared, InFlightRecord, ReadPosition
from pipeline.delivery.queue.error_reasons import (
    CORRUPT,
    OVER_SIZE,
    REMOVED,
    SHORTAGE_ERRNOS,
    reason_of,
    text_of,
)
from pipeline.files.disk_sync import NO_SPACE

_SMALLEST: Final = 64 << 10
_LARGEST: Final = 16 << 20
_PARTS: Final = 16


class Store:
    """An open queue folder: its segments and its cursor.

    Args:
        shared: settings and state of the queue.

    Attributes:
        folder: the locked folder.
        reader: reads the next record.

    Raises:
        LockedError: the folder is in use.
        KindError: the folder contains records of another kind.
        OSError: the folder can't be opened.
    """

    def __init__(self, shared: DiskShared) -> None:
        self._shared = shared
        self._flushes = shared.fsync_ns > 0
        self._counters, self._fault_log = shared.counters, shared.fault_log
        self._in_flight = shared.in_flight
        self._segment_size = min(max(shared.max_size // _PARTS, _SMALLEST), _LARGEST)
        self._segments = SegmentList()
        self.reader = SegmentReader(shared, self._segments)
        self._leftovers: list[Segment] = []
        self._missing = (0, 0)
        self.folder = QueueFolder(shared.path, flushes=self._flushes)
        self._writer = SegmentWriter(self.folder, shared)
        try:
            self._cursor = self._open_cursor()
        except OSError:
            self.folder.close()
            raise
        try:
            self._load()
        except OSError:
            self.close()
            raise

    # -- opening -------------------------------------------------------------------------------

    def _open_cursor(self) -> CursorFile:
        path = self._shared.path / CURSOR
        if path.is_symlink() or (path.exists() and not path.is_file()):
            self._quarantine(path)
        return CursorFile(path)

    def _load(self) -> None:
        saved = self._cursor.state
        if saved is not None and saved.kind not in ("", self._shared.kind):
            text = f"holds records of the kind {saved.kind}"
            raise KindError(errno.EEXIST, text, str(self._shared.path))
        found = self._scan(saved.segment if saved else 0)
        note = ""
        if saved is None:
            saved = CursorState(position=found.segments[0].first_point if found.segments else 0)
            if found.segments:
                note = (
                    f"the cursor of the queue in {self._shared.path} was lost: all records in the "
                    "queue are sent again, and its totals start at zero"
                )
        if note or self._cursor.broken:
            reason = "corrupt" if self._cursor.broken else "missing"
            self._fault_log.count_fault("cursor", reason, note)
        if self._counters.previous is None:
            self._counters.add_previous(saved.acked, saved.rejected, saved.dropped)
        for path in found.disposable:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in found.broken:
            self._quarantine(path)
        self._next_segment = max(found.highest_number, saved.segment) + 1
        self._next_record = max(found.next_record, saved.next_record, saved.record)
        self.end = max(found.end, saved.end, saved.position)
        self.recovered = self.end - saved.position
        self.reader.position = ReadPosition(
            saved.segment, saved.place, saved.position, saved.record
        )
        self._segments += found.segments
        for last in found.segments[-1:]:
            if last.header_valid and (
                last.number > saved.segment or saved.place <= found.valid_end
            ):
                self._writer.resume(last, found.valid_end)
        if not self._segments:
            self.count_lost(self.end)
        while self._segments.size > self._shared.max_size:
            self._remove(0, OVER_SIZE)
        self.save()

    def _scan(self, oldest: int) -> FolderScan:
        retry_budget = self._shared.retry_budget
        try:
            found = scan_folder(self._shared.path, oldest, lenient=retry_budget.is_exhausted)
            if found.error and not found.segments and not retry_budget.is_hopeless:
                raise found.error  # the whole disk is away, not only a block of it unreadable
        except OSError as error:
            if error.errno not in SHORTAGE_ERRNOS:
                retry_budget.record_failure()
            self._fault_log.count_fault("read", reason_of(error))
            raise
        retry_budget.record_success()
        return found

    def _quarantine(self, path: Path) -> None:
        try:
            renamed = self.folder.quarantine(path, self._shared.now().wall_ns)
        except OSError as error:
            reason = reason_of(error)
            result = f"cannot be renamed: {text_of(error)}; remove it"
        else:
            reason = "quarantined"
            result = f"was renamed to {renamed.name}; the queue continues without it"
        note = f"{path} is not a valid file of this queue and {result}"
        self._fault_log.count_fault("open", reason, note)

    # -- reading -------------------------------------------------------------------------------

    @property
    def read_position(self) -> ReadPosition:
        """Position of the oldest record that is not settled; the queue's end if all are settled."""
        place, segments = self._in_flight.position or self.reader.position, self._segments
        index = segments.find(place.segment)
        while index + 1 < len(segments) and (
            segments[index].number > place.segment or place.offset >= segments[index].size
        ):
            if segments[index].number == place.segment:
                index += 1
            place = ReadPosition(
                segments[index].number,
                segments[index].first_record,
                place.position,
                place.record,
            )
        return place

    @property
    def is_drained(self) -> bool:
        """Whether all records are settled or in flight."""
        return self.reader.position.position >= self.end

    @property
    def queued(self) -> int:
        """Number of points on disk that are not settled."""
        return self.end - (self._in_flight.position or self.reader.position).position

    @property
    def size(self) -> int:
        """Number of bytes in all segments, including those that could not be removed yet."""
        return sum(segment.size for segment in (*self._segments, *self._leftovers))

    def count_lost(self, position: int) -> None:
        """Count the points from the next record to a position as lost, and move there."""
        start = self.reader.position.position
        removed = max(min(position, self._missing[1]) - max(start, self._missing[0]), 0)
        self._counters.drop(REMOVED, removed)
        corrupt = position - start - removed
        if corrupt > 0:
            self._counters.drop(CORRUPT, corrupt)
            self._fault_log.corrupt_points += corrupt
        self._skip_to(max(position, start))

    def _skip_to(self, position: int) -> None:
        self.reader.position = replace(self.reader.position, position=position)

    # -- writing -------------------------------------------------------------------------------

    def put(self, record: Record, *, in_flight: bool = False) -> None:
        """Write a record at the end; if there is no room, remove segments, the oldest first.

        Args:
            record: a record that is not larger than the queue may be.
            in_flight: whether the record is in flight already; then all records before it are too.

        Raises:
            OSError: the record can't be written; no part of it is left.
        """
        self._drop_removed()
        try:
            self._write(record, in_flight=in_flight)
        except OSError as error:
            # Settled records may take all of the room.
            if reason_of(error) != NO_SPACE or not self._remove_all_sent():
                raise
            self._write(record, in_flight=in_flight)

    def _remove_all_sent(self) -> bool:
        """Remove all segments if all their records are settled; return whether that made room."""
        if (
            self._in_flight
            or not self.is_drained
            or self._segments.size <= SEGMENT_SIZE * len(self._segments)
        ):
            return False
        self._writer.close()
        sent = self._segments.copy()
        self._segments.clear()
        self._save_and_unlink(sent)
        return True

    def _write(self, record: Record, *, in_flight: bool) -> None:
        segment = self._room_for(RECORD_SIZE + len(record.data))
        head = pack_record_header(record, self._next_record, self.end, segment.number)
        place = ReadPosition(segment.number, segment.size, self.end, self._next_record)
        self._writer.write(head, record.data)
        self.end += record.points
        self._next_record += 1
        if in_flight:
            self._in_flight.append(InFlightRecord(place, record.points, record.created_ns))
            place = ReadPosition(segment.number, segment.size, self.end, self._next_record)
            self.reader.position = place

    def _room_for(self, size: int) -> Segment:
        """Return the segment for a record of a size; remove the oldest segments to make room."""
        filled = self._segments[-1].size if self._writer.is_open else 0
        if filled > SEGMENT_SIZE and filled + size > self._segment_size:
            self._writer.close_flushed()
        while self.size + size + SEGMENT_SIZE * (not self._writer.is_open) > self._shared.max_size:
            if self._leftovers:
                self._remove_leftovers()
            elif self._segments:
                self._remove(0, OVER_SIZE)
        if self._writer.is_open:
            return self._segments[-1]
        segment = self._writer.begin(self._next_segment, self.end, self._next_record)
        self._next_segment += 1
        self._segments.append(segment)
        self.remove_finished()
        return segment

    def _drop_removed(self) -> None:
        """Detect files that other programs removed or replaced, and replace them."""
        replaced = not self._writer.exists()
        if replaced or not self.folder.is_locked():
            self.folder.lock()
            if replaced and os.path.lexists(self._segments[-1].path):
                self._quarantine(self._segments[-1].path)
            for index in reversed(range(len(self._segments))):
                if not os.path.lexists(self._segments[index].path):
                    self._segment_missing(index)
        if not self._cursor.exists():
            cursor = self._open_cursor()
            self._cursor.close()
            self._cursor = cursor
            self.save(flush=self._flushes)

    def next_segment_missing(self) -> None:
        """Count the points of the segment that is read next as lost: its file is missing."""
        self._segment_missing(self._segments.find(self.reader.position.segment))

    def _segment_missing(self, index: int) -> None:
        self._fault_log.count_fault(
            "open",
            REMOVED,
            f"{self._segments[index].path} was removed by another program; the points in it are "
            "lost. Do not change the folder of a queue while podgpu runs",
        )
        self._remove(index, REMOVED)

    def _remove(self, index: int, reason: str) -> None:
        """Remove a segment, and count the points that are lost with it."""
        place = self._in_flight.position or self.reader.position
        after = self._segments.first_after(index, self.end)
        if index == len(self._segments) - 1:
            self._writer.close()
        segment = self._segments.pop(index)
        first = segment.first_point
        self._in_flight.mark_lost(segment.number, reason)
        position = self.reader.position.position
        if self._in_flight.position is None and (index == 0 or first <= position):
            if first > position:
                self.count_lost(first)
            self._counters.drop(reason, after - max(position, first))
            self._skip_to(max(position, after))
        elif reason == REMOVED:
            # Its points are counted when the reader reaches them.
            known = self._missing if self._missing[1] > place.position else (first, after)
            self._missing = min(known[0], first), max(known[1], after)
        self._save_and_unlink([segment])

    def remove_finished(self) -> None:
        """Save the cursor, and remove the segments whose records are all settled."""
        count = self._segments.find(self.read_position.segment)
        finished = self._segments[:count]
        del self._segments[:count]
        self._save_and_unlink(finished)

    def _save_and_unlink(self, segments: list[Segment]) -> None:
        # Save the counts before removing files, so that a power failure leaves no points uncounted.
        self.save(flush=bool(segments) and self._flushes)
        for segment in segments:
            self.reader.close_segment(segment.number)
        self._leftovers += segments
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        while self._leftovers:
            try:
                self._leftovers[-1].path.unlink(missing_ok=True)
            except NotADirectoryError:
                pass
            except OSError as error:
                self._fault_log.record_failure(
                    "remove", error, f"cannot remove {self._leftovers[-1].path}: {{}}"
                )
                raise
            self._leftovers.pop()
            self._fault_log.record_recovery(
                "remove", f"segments in {self._shared.path} can be removed again"
            )

    # -- the cursor ----------------------------------------------------------------------------

    def save(self, *, flush: bool = False) -> None:
        """Write the cursor, and flush it to the disk if requested."""
        path, place = self._shared.path / CURSOR, self.read_position
        state = CursorState(
            kind=self._shared.kind,
            segment=place.segment,
            place=place.offset,
            position=place.position,
            record=place.record,
            end=self.end,
            next_record=self._next_record,
            acked=self._counters.acked,
            rejected=self._counters.rejected,
            # Records in flight that are no longer on disk are lost if the process ends now.
            dropped=dict(Counter(self._counters.dropped) + self._in_flight.lost_points),
        )
        try:
            self._cursor.save(state, to_flush=flush)
        except OSError as error:
            self._fault_log.record_failure(
                "cursor",
                error,
                f"cannot write the cursor {path}: {{}}; records that were sent would be sent again "
                "after a restart",
            )
            return
        self._fault_log.record_recovery("cursor", f"{path} can be written again")
        if flush and self._writer.sync(self._cursor.fileno()):
            self._cursor.mark_flushed()

    def flush(self) -> None:
        """Flush everything to the disk, and try again to remove segments."""
        if self._flushes and (self._writer.dirty or self._cursor.dirty):
            self._writer.flush()
            self.save(flush=True)
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def discard_all(self) -> None:
        """Close the store after its folder was removed; count points that are not in flight."""
        self._in_flight.mark_lost(None, REMOVED)
        self._counters.drop(REMOVED, self.end - self.reader.position.position)
        self._writer.close()
        self.close()

    def close(self) -> None:
        """Close all files and release the folder."""
        self._writer.close_flushed()
        self.reader.close()
        self._cursor.close()
        self.folder.close()
