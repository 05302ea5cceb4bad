"""The files of a queue as one: records go in at one end and are looked at from the other."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import Record
from pipeline.delivery.queue.disk.cursor import CursorFile, Mark
from pipeline.delivery.queue.disk.folder import CURSOR, Folder
from pipeline.delivery.queue.disk.in_flight import Taken
from pipeline.delivery.queue.disk.record_format import RECORD_SIZE, SEGMENT_SIZE, pack_record_head
from pipeline.delivery.queue.disk.record_reader import Place, Reader, start_of
from pipeline.delivery.queue.disk.segment_writer import Writer
from pipeline.delivery.queue.disk.segments import Segment, Shelf, Survey, survey
from pipeline.delivery.queue.disk.settings import KindError, Setup
from pipeline.delivery.queue.error_reasons import (
    CORRUPT,
    OVER_SIZE,
    REMOVED,
    ours,
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

    def __init__(self, setup: Setup, *, first: bool) -> None:
        self._setup = setup
        self._tally, self._notices = setup.tally, setup.notices
        self._flight = setup.flight
        self._segment_size = min(max(setup.max_size // _PARTS, _SMALLEST), _LARGEST)
        self._shelf = Shelf()
        self._reader = Reader(
            self._shelf, Place(0, 0, 0, 0), setup.path, self._notices, setup.patience
        )
        self._leftovers: list[Segment] = []
        self._missing = (0, 0)
        self._folder = Folder(setup.path, flushes=setup.flushes)
        self._writer = Writer(self._folder, setup.notices, flushes=setup.flushes)
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
            self._notices.count("cursor", "corrupt" if self._cursor.broken else "missing")
        if mark is None:
            mark = Mark(position=found.segments[0].first if found.segments else 0)
            if found.segments:
                self._notices.say(
                    f"the cursor of the queue in {self._setup.path} was lost: all that is in it is "
                    "sent again, and its totals begin anew"
                )
        if first:
            self._tally.add(mark.acked, mark.rejected, mark.dropped)
        for path in found.useless:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in found.broken:
            self._put_aside(path)
        self._next_segment = max(found.top, mark.segment) + 1
        self._next_record = max(found.next_record, mark.next_record, mark.record)
        self.end = max(found.end, mark.end, mark.position)
        self.recovered = self.end - mark.position
        self._reader.place = Place(mark.segment, mark.place, mark.position, mark.record)
        self._fill(found, mark)
        if not self._shelf:
            self.lose(self.end)
        while self._shelf.size > self._setup.max_size:
            self._remove(0, OVER_SIZE)
        self.save()

    def _survey(self, oldest: int) -> Survey:
        patience = self._setup.patience
        try:
            found = survey(self._setup.path, oldest, lenient=patience.over)
            if found.error and not found.segments and not patience.hopeless:
                raise found.error  # the disk is away, rather than a block of it broken
        except OSError as error:
            if not ours(error):
                patience.failed()
            self._notices.count("read", reason_of(error))
            raise
        patience.worked()
        return found

    def _fill(self, found: Survey, mark: Mark) -> None:
        for segment in found.segments[:-1]:
            self._shelf.put(segment)
        for last in found.segments[-1:]:
            unread = last.number > mark.segment or mark.place <= found.clean
            if last.sound and unread and self._writer.go_on(last, found.clean):
                last.size = found.clean
            self._shelf.put(last)

    def _put_aside(self, path: Path) -> None:
        try:
            aside = self._folder.put_aside(path, self._setup.now().wall_ns)
        except OSError as error:
            self._notices.count("open", reason_of(error))
            self._notices.say(f"{path} is not a file of this queue and cannot be put aside: "
                              f"{text_of(error)}; remove it")  # fmt: skip
        else:
            self._notices.count("open", "quarantined")
            self._notices.say(f"{path} says nothing that this queue understands; it is "
                              f"{aside.name} now, and the queue goes on without it")  # fmt: skip

    # -- looking -------------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Up to where records are done with."""
        place, shelf = self._flight.place or self._reader.place, self._shelf
        index = shelf.index(place.segment)
        while index + 1 < len(shelf) and (
            shelf[index].number > place.segment or place.offset >= shelf[index].size
        ):
            if shelf[index].number == place.segment:
                index += 1
            place = Place(shelf[index].number, start_of(shelf[index]), place.position, place.record)
        return place

    @property
    def reader(self) -> Reader:
        """Where the next record is to be taken."""
        return self._reader

    @property
    def drained(self) -> bool:
        """Whether nothing is left to be taken."""
        return self._reader.place.position >= self.end

    @property
    def queued(self) -> int:
        """Points that are on the disk and not done with."""
        return self.end - (self._flight.place or self._reader.place).position

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._shelf.size + sum(segment.size for segment in self._leftovers)

    def lose(self, position: int) -> None:
        """Count all points from the next record to a position: nothing is there of them."""
        start = self._reader.place.position
        removed = max(min(position, self._missing[1]) - max(start, self._missing[0]), 0)
        self._tally.drop(REMOVED, removed)
        corrupt = position - start - removed
        if corrupt > 0:
            self._tally.drop(CORRUPT, corrupt)
            self._notices.broken(self._setup.path, corrupt)
        self._reader.skip(max(position, start))

    # -- writing -------------------------------------------------------------------------------

    def moved(self) -> bool:
        """Whether the folder is no longer the one at its path."""
        return not self._folder.there()

    def put(self, record: Record, *, taken: bool = False) -> None:
        """Write a record at the end; the oldest segments make room.

        Args:
            record: no larger than there can be room for.
            taken: whether it is in flight already, and all before it are too.

        Raises:
            OSError: it can't be written; nothing is left of it.
        """
        self._find_again()
        try:
            self._write(record, taken=taken)
        except OSError as error:
            # What is done with may take all the room that there is.
            if reason_of(error) != NO_SPACE or not self._let_go():
                raise
            self._write(record, taken=taken)

    def _let_go(self) -> bool:
        """Remove all segments if nothing in them is left to be sent; whether that made room."""
        if self._flight or not self.drained or self._shelf.size <= SEGMENT_SIZE * len(self._shelf):
            return False
        self._writer.forget()
        self._save_and_unlink([self._shelf.remove(0) for _ in range(len(self._shelf))])
        return True

    def _write(self, record: Record, *, taken: bool) -> None:
        segment = self._room_for(RECORD_SIZE + len(record.data))
        head = pack_record_head(record, self._next_record, self.end, segment.number)
        place = Place(segment.number, segment.size, self.end, self._next_record)
        self._writer.write(head, record.data)
        self._shelf.grow(len(head) + len(record.data))
        self.end += record.points
        self._next_record += 1
        if taken:
            self._flight.put(Taken(place, record.points, record.made_ns))
            self._reader.place = Place(segment.number, segment.size, self.end, self._next_record)

    def _room_for(self, size: int) -> Segment:
        """Return the segment in which a record is to be written."""
        filled = self._writer.size
        if self._writer.opened and filled > SEGMENT_SIZE and filled + size > self._segment_size:
            self._writer.leave()
        while self.size + size + SEGMENT_SIZE * (not self._writer.opened) > self._setup.max_size:
            if self._leftovers:
                self._remove_leftovers()
            elif self._shelf:
                self._remove(0, OVER_SIZE)
        if self._writer.opened:
            return self._shelf[-1]
        segment = self._writer.begin(self._next_segment, self.end, self._next_record)
        self._next_segment += 1
        self._shelf.put(segment)
        self.sweep()
        return segment

    def _find_again(self) -> None:
        """Notice what others have removed."""
        replaced = not self._writer.there()
        if replaced or not self._folder.locked():
            self._folder.lock()
            if replaced and os.path.lexists(self._shelf[-1].path):
                self._put_aside(self._shelf[-1].path)
            for index in reversed(range(len(self._shelf))):
                if not os.path.lexists(self._shelf[index].path):
                    self.miss(index)
        if not self._cursor.there():
            cursor = self._open_cursor()
            self._cursor.close()
            self._cursor = cursor
            self._flush_cursor() if self._setup.flushes else self.save()

    def miss(self, index: int) -> None:
        """Note that a segment is gone that should be there."""
        self._notices.count("open", REMOVED)
        self._notices.say(
            f"{self._shelf[index].path} was removed by somebody; what was in it is lost. The "
            "folder of a queue belongs to it alone"
        )
        self._remove(index, REMOVED)

    def _remove(self, index: int, reason: str) -> None:
        """Do without a segment, and count what is lost by that."""
        place = self._flight.place or self._reader.place
        first, after = self._shelf[index].first, self._shelf.first_after(index, self.end)
        if index == len(self._shelf) - 1:
            self._writer.forget()
        segment = self._shelf.remove(index)
        self._flight.lose(segment.number, reason)
        position = self._reader.place.position
        if self._flight.place is None and (index == 0 or first <= position):
            if first > position:
                self.lose(first)
            self._tally.drop(reason, after - max(position, first))
            self._reader.skip(max(position, after))
        elif reason == REMOVED:
            # Counted when its place is come to.
            known = self._missing if self._missing[1] > place.position else (first, after)
            self._missing = min(known[0], first), max(known[1], after)
        self._save_and_unlink([segment])

    def sweep(self) -> None:
        """Note what is done with, and remove the segments in which nothing else is."""
        count = self._shelf.index(self.place.segment)
        self._save_and_unlink([self._shelf.remove(0) for _ in range(min(count, len(self._shelf)))])

    def _save_and_unlink(self, segments: list[Segment]) -> None:
        # First what became of it, then the loss of it: else it would be missed after a power cut.
        if segments and self._setup.flushes:
            self._flush_cursor()
        else:
            self.save()
        for segment in segments:
            self._reader.forget(segment.number)
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
                self._notices.fails(
                    "remove", error, f"cannot remove {self._leftovers[-1].path}: {{}}"
                )
                raise
            self._leftovers.pop()
            self._notices.works("remove", f"segments in {self._setup.path} are removed again")

    # -- the cursor ----------------------------------------------------------------------------

    def save(self) -> None:
        """Write the cursor."""
        self._try_cursor(self._cursor.save)

    def _flush_cursor(self) -> None:
        if self._try_cursor(self._cursor.save_to_flush) and self._writer.sync(
            self._cursor.fileno()
        ):
            self._cursor.flushed()

    def _try_cursor(self, write: Callable[[Mark], None]) -> bool:
        try:
            write(self._mark())
        except OSError as error:
            self._notices.fails(
                "cursor",
                error,
                f"cannot note in {self._setup.path / CURSOR} what is done with: {{}}; it would be "
                "sent again after a restart",
            )
            return False
        self._notices.works("cursor", f"{self._setup.path / CURSOR} is written again")
        return True

    def _mark(self) -> Mark:
        place = self.place
        return Mark(
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
            dropped=dict(Counter(self._tally.dropped) + self._flight.lost),
        )

    def flush(self) -> None:
        """Let everything outlive a power cut, and try again to remove what couldn't be."""
        if self._setup.flushes and (self._writer.dirty or self._cursor.dirty):
            self._writer.flush()
            self._flush_cursor()
        with contextlib.suppress(OSError):
            self._remove_leftovers()

    def abandon(self) -> None:
        """Count everything that isn't in flight as removed, and what is as gone from the disk."""
        self._flight.lose(None, REMOVED)
        self._tally.drop(REMOVED, self.end - self._reader.place.position)
        self._writer.forget()
        self.close()

    def close(self) -> None:
        """Give everything back, as it is."""
        self._writer.leave()
        self._reader.close()
        self._cursor.close()
        self._folder.close()
