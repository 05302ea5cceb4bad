"""The files of a queue as one: records go in at one end and are looked at from the other."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.disk.cursor import CursorFile, CursorState
from pipeline.delivery.queue.disk.folder import CURSOR, QueueFolder
from pipeline.delivery.queue.disk.in_flight import InFlightRecord
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, pack_record_header
from pipeline.delivery.queue.disk.record_reader import (
    ReadPosition,
    SegmentReader,
    first_record_offset,
)
from pipeline.delivery.queue.disk.segment_writer import SegmentWriter
from pipeline.delivery.queue.disk.segments import FolderScan, Segment, SegmentList, scan_folder
from pipeline.delivery.queue.disk.settings import KindError, StoreConfig
from pipeline.delivery.queue.error_reasons import (
    CORRUPT,
    OVER_SIZE,
    REMOVED,
    is_resource_shortage,
    reason_of,
    text_of,
)
from pipeline.files.disk_sync import NO_SPACE

_SMALLEST: Final = 64 << 10
_LARGEST: Final = 16 << 20
_PARTS: Final = 16


class Store:
    """An open folder.

    Args:
        setup: see there.
        first: whether the tally lacks what earlier processes have counted.

    Raises:
        LockedError: somebody else has it.
        KindError: records of another kind are in it.
        OSError: it can't be opened.
    """

    def __init__(self, setup: StoreConfig, *, first: bool) -> None:
        self._setup = setup
        self._tally, self._notices = setup.counters, setup.fault_log
        self._in_flight = setup.in_flight
        self._segment_size = min(max(setup.max_size // _PARTS, _SMALLEST), _LARGEST)
        self._segments = SegmentList()
        self._reader = SegmentReader(
            self._segments, ReadPosition(0, 0, 0, 0), setup.path, self._notices, setup.retry_budget
        )
        self._leftovers: list[Segment] = []
        self._missing = (0, 0)
        self._folder = QueueFolder(setup.path, flushes=setup.flushes)
        self._writer = SegmentWriter(self._folder, setup.fault_log, flushes=setup.flushes)
        try:
            self._cursor = self._open_cursor()
        except OSError:
            self._folder.close()
            raise
        try:
            self._load(first=first)
        except OSError:
            self.close()
            raise

    # -- opening -------------------------------------------------------------------------------

    def _open_cursor(self) -> CursorFile:
        path = self._setup.path / CURSOR
        if path.is_symlink() or (path.exists() and not path.is_file()):
            self._put_aside(path)
        return CursorFile(path)

    def _load(self, *, first: bool) -> None:
        mark = self._cursor.mark
        if mark is not None and mark.kind not in ("", self._setup.kind):
            raise KindError(self._setup.path, mark.kind)
        found = self._survey(mark.segment if mark else 0)
        if self._cursor.broken or (mark is None and found.segments):
            self._notices.count_fault("cursor", "corrupt" if self._cursor.broken else "missing")
        if mark is None:
            mark = CursorState(position=found.segments[0].first_point if found.segments else 0)
            if found.segments:
                self._notices.add_note(
                    f"the cursor of the queue in {self._setup.path} was lost: all that is in it is "
                    "sent again, and its totals begin anew"
                )
        if first:
            self._tally.add_previous(mark.acked, mark.rejected, mark.dropped)
        for path in found.disposable:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in found.broken:
            self._put_aside(path)
        self._next_segment = max(found.highest_number, mark.segment) + 1
        self._next_record = max(found.next_record, mark.next_record, mark.record)
        self.end = max(found.end, mark.end, mark.position)
        self.recovered = self.end - mark.position
        self._reader.position = ReadPosition(mark.segment, mark.place, mark.position, mark.record)
        self._fill(found, mark)
        if not self._segments:
            self.count_lost(self.end)
        while self._segments.size > self._setup.max_size:
            self._remove(0, OVER_SIZE)
        self.save()

    def _survey(self, oldest: int) -> FolderScan:
        patience = self._setup.retry_budget
        try:
            found = scan_folder(self._setup.path, oldest, lenient=patience.is_exhausted)
            if found.error and not found.segments and not patience.is_hopeless:
                raise found.error  # the disk is away, rather than a block of it broken
        except OSError as error:
            if not is_resource_shortage(error):
                patience.record_failure()
            self._notices.count_fault("read", reason_of(error))
            raise
        patience.record_success()
        return found

    def _fill(self, survey: FolderScan, mark: CursorState) -> None:
        for segment in survey.segments[:-1]:
            self._segments.append(segment)
        for last in survey.segments[-1:]:
            unread = last.number > mark.segment or mark.place <= survey.valid_end
            if last.header_valid and unread and self._writer.resume(last, survey.valid_end):
                last.size = survey.valid_end
            self._segments.append(last)

    def _put_aside(self, path: Path) -> None:
        try:
            aside = self._folder.quarantine(path, self._setup.now().wall_ns)
        except OSError as error:
            self._notices.count_fault("open", reason_of(error))
            self._notices.add_note(f"{path} is not a file of this queue and cannot be put aside: "
                              f"{text_of(error)}; remove it")  # fmt: skip
        else:
            self._notices.count_fault("open", "quarantined")
            self._notices.add_note(f"{path} says nothing that this queue understands; it is "
                              f"{aside.name} now, and the queue goes on without it")  # fmt: skip

    # -- looking -------------------------------------------------------------------------------

    @property
    def read_position(self) -> ReadPosition:
        """Up to where records are done with."""
        place, shelf = self._in_flight.position or self._reader.position, self._segments
        index = shelf.index(place.segment)
        while index + 1 < len(shelf) and (
            shelf[index].number > place.segment or place.offset >= shelf[index].size
        ):
            if shelf[index].number == place.segment:
                index += 1
            place = ReadPosition(
                shelf[index].number, first_record_offset(shelf[index]), place.position, place.record
            )
        return place

    @property
    def reader(self) -> SegmentReader:
        """Where the next record is to be taken."""
        return self._reader

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to be taken."""
        return self._reader.position.position >= self.end

    @property
    def queued(self) -> int:
        """Points that are on the disk and not done with."""
        return self.end - (self._in_flight.position or self._reader.position).position

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size + sum(segment.size for segment in self._leftovers)

    def count_lost(self, position: int) -> None:
        """Count all points from the next record to a position: nothing is there of them."""
        start = self._reader.position.position
        removed = max(min(position, self._missing[1]) - max(start, self._missing[0]), 0)
        self._tally.drop(REMOVED, removed)
        corrupt = position - start - removed
        if corrupt > 0:
            self._tally.drop(CORRUPT, corrupt)
            self._notices.add_corrupt_points(self._setup.path, corrupt)
        self._reader.skip_to(max(position, start))

    # -- writing -------------------------------------------------------------------------------

    def folder_replaced(self) -> bool:
        """Whether the folder is no longer the one at its path."""
        return not self._folder.exists()

    def put(self, record: Record, *, in_flight: bool = False) -> None:
        """Write a record at the end; the oldest segments make room.

        Args:
            record: no larger than there can be room for.
            in_flight: whether it is in flight already, and all before it are too.

        Raises:
            OSError: it can't be written; nothing is left of it.
        """
        self._drop_removed()
        try:
            self._write(record, taken=in_flight)
        except OSError as error:
            # What is done with may take all the room that there is.
            if reason_of(error) != NO_SPACE or not self._remove_all_sent():
                raise
            self._write(record, taken=in_flight)

    def _remove_all_sent(self) -> bool:
        """Remove all segments if nothing in them is left to be sent; whether that made room."""
        if (
            self._in_flight
            or not self.is_drained
            or self._segments.size <= SEGMENT_SIZE * len(self._segments)
        ):
            return False
        self._writer.close()
        self._save_and_unlink([self._segments.remove(0) for _ in range(len(self._segments))])
        return True

    def _write(self, record: Record, *, taken: bool) -> None:
        segment = self._room_for(RECORD_SIZE + len(record.data))
        head = pack_record_header(record, self._next_record, self.end, segment.number)
        place = ReadPosition(segment.number, segment.size, self.end, self._next_record)
        self._writer.write(head, record.data)
        self._segments.grow_last(len(head) + len(record.data))
        self.end += record.points
        self._next_record += 1
        if taken:
            self._in_flight.put(InFlightRecord(place, record.points, record.created_ns))
            self._reader.position = ReadPosition(
                segment.number, segment.size, self.end, self._next_record
            )

    def _room_for(self, size: int) -> Segment:
        """Return the segment in which a record is to be written."""
        filled = self._writer.size
        if self._writer.is_open and filled > SEGMENT_SIZE and filled + size > self._segment_size:
            self._writer.close_flushed()
        while self.size + size + SEGMENT_SIZE * (not self._writer.is_open) > self._setup.max_size:
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
        """Notice what others have removed."""
        replaced = not self._writer.exists()
        if replaced or not self._folder.is_locked():
            self._folder.lock()
            if replaced and os.path.lexists(self._segments[-1].path):
                self._put_aside(self._segments[-1].path)
            for index in reversed(range(len(self._segments))):
                if not os.path.lexists(self._segments[index].path):
                    self.segment_missing(index)
        if not self._cursor.exists():
            cursor = self._open_cursor()
            self._cursor.close()
            self._cursor = cursor
            self._flush_cursor() if self._setup.flushes else self.save()

    def segment_missing(self, index: int) -> None:
        """Note that a segment is gone that should be there."""
        self._notices.count_fault("open", REMOVED)
        self._notices.add_note(
            f"{self._segments[index].path} was removed by somebody; what was in it is lost. The "
            "folder of a queue belongs to it alone"
        )
        self._remove(index, REMOVED)

    def _remove(self, index: int, reason: str) -> None:
        """Do without a segment, and count what is lost by that."""
        place = self._in_flight.position or self._reader.position
        first, after = (
            self._segments[index].first_point,
            self._segments.first_after(index, self.end),
        )
        if index == len(self._segments) - 1:
            self._writer.close()
        segment = self._segments.remove(index)
        self._in_flight.mark_lost(segment.number, reason)
        position = self._reader.position.position
        if self._in_flight.position is None and (index == 0 or first <= position):
            if first > position:
                self.count_lost(first)
            self._tally.drop(reason, after - max(position, first))
            self._reader.skip_to(max(position, after))
        elif reason == REMOVED:
            # Counted when its place is come to.
            known = self._missing if self._missing[1] > place.position else (first, after)
            self._missing = min(known[0], first), max(known[1], after)
        self._save_and_unlink([segment])

    def remove_finished(self) -> None:
        """Note what is done with, and remove the segments in which nothing else is."""
        count = self._segments.index(self.read_position.segment)
        self._save_and_unlink(
            [self._segments.remove(0) for _ in range(min(count, len(self._segments)))]
        )

    def _save_and_unlink(self, segments: list[Segment]) -> None:
        # First what became of it, then the loss of it: else it would be missed after a power cut.
        if segments and self._setup.flushes:
            self._flush_cursor()
        else:
            self.save()
        for segment in segments:
            self._reader.close_segment(segment.number)
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
                self._notices.record_failure(
                    "remove", error, f"cannot remove {self._leftovers[-1].path}: {{}}"
                )
                raise
            self._leftovers.pop()
            self._notices.record_recovery(
                "remove", f"segments in {self._setup.path} are removed again"
            )

    # -- the cursor ----------------------------------------------------------------------------

    def save(self) -> None:
        """Write the cursor."""
        self._try_cursor(self._cursor.save)

    def _flush_cursor(self) -> None:
        if self._try_cursor(self._cursor.save_to_flush) and self._writer.sync(
            self._cursor.fileno()
        ):
            self._cursor.mark_flushed()

    def _try_cursor(self, write: Callable[[CursorState], None]) -> bool:
        try:
            write(self._cursor_state())
        except OSError as error:
            self._notices.record_failure(
                "cursor",
                error,
                f"cannot note in {self._setup.path / CURSOR} what is done with: {{}}; it would be "
                "sent again after a restart",
            )
            return False
        self._notices.record_recovery("cursor", f"{self._setup.path / CURSOR} is written again")
        return True

    def _cursor_state(self) -> CursorState:
        place = self.read_position
        return CursorState(
            kind=self._setup.kind,
            segment=place.segment,
            place=place.offset,
            position=place.position,
            record=place.record,
            end=self.end,
            next_record=self._next_record,
            acked=self._tally.acked,
            rejected=self._tally.rejected,
            # What is in flight and gone from the disk is lost if the process ends now.
            dropped=dict(Counter(self._tally.dropped) + self._in_flight.lost_points),
        )

    def flush(self) -> None:
        """Let everything outlive a power cut, and try again to remove what couldn't be."""
        if self._setup.flushes and (self._writer.dirty or self._cursor.dirty):
            self._writer.flush()
            self._flush_cursor()
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def discard_all(self) -> None:
        """Count everything that isn't in flight as removed, and what is as gone from the disk."""
        self._in_flight.mark_lost(None, REMOVED)
        self._tally.drop(REMOVED, self.end - self._reader.position.position)
        self._writer.close()
        self.close()

    def close(self) -> None:
        """Give everything back, as it is."""
        self._writer.close_flushed()
        self._reader.close()
        self._cursor.close()
        self._folder.close()
