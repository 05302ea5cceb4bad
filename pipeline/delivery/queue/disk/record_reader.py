"""Reading records in their order, over all segments."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.delivery.queue.counters import Notices
from pipeline.delivery.queue.disk.record_format import SEGMENT_SIZE
from pipeline.delivery.queue.disk.retry_budget import Patience
from pipeline.delivery.queue.disk.segment_reader import Found, SegmentFile, find
from pipeline.delivery.queue.disk.segments import Segment, Shelf
from pipeline.delivery.queue.error_reasons import ours, reason_of, text_of


@dataclass(frozen=True, slots=True)
class Place:
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


def start_of(segment: Segment) -> int:
    """Return where the first record stands; with a broken header that has to be searched for."""
    return SEGMENT_SIZE if segment.sound else 0


class MissingError(Exception):
    """A segment isn't there any more.

    Attributes:
        index: which one of the shelf.
    """

    def __init__(self, index: int) -> None:
        super().__init__(f"segment {index} is missing")
        self.index = index


class Reader:
    """Where the next record is to be taken.

    Args:
        shelf: the segments.
        place: where to begin.
        folder: where the segments are.
        notices: where it is noted that the disk can't be read.
        patience: with such a disk.
    """

    def __init__(
        self, shelf: Shelf, place: Place, folder: Path, notices: Notices, patience: Patience
    ) -> None:
        self.place = place
        self._shelf = shelf
        self._folder = folder
        self._notices = notices
        self._patience = patience
        self._file: SegmentFile | None = None
        self._sick: int | None = None
        self._seen: tuple[Place, int, Found | None] | None = None

    def oldest_ns(self, end: int) -> int | None:
        """Return when the next record was made, if there is one.

        If it can't be read now, that of the record that was there before: the next `look` tells.
        """
        tried = self._patience.tried
        if not tried and (self._seen is None or self._seen[:2] != (self.place, end)):
            try:
                found = self.look(end, room=-1)  # which may change the place
                self._seen = self.place, end, found
            except MissingError:
                return None
            except OSError:
                pass
        return self._seen[2].head.made_ns if self._seen and self._seen[2] else None

    def look(self, end: int, room: int | None) -> Found | None:
        """Return the next record, and leave it.

        Args:
            end: points before the end of all.
            room: bytes that it may have; one that is larger has no body. None for any.

        Raises:
            MissingError: its segment is not there.
            OSError: it can't be read now; that it never can be is known after a while.
        """
        index = self._shelf.index(self.place.segment)
        while index < len(self._shelf):
            segment = self._shelf[index]
            if segment.number != self.place.segment:
                self._go(segment.number, start_of(segment))
            if self.place.offset < segment.size:
                span = self.place.position, self._shelf.first_after(index, end)
                found = self._find(index, span, room)
                if found:
                    return found
                # So that a long piece of rubbish is searched once.
                self._go(segment.number, segment.size)
            index += 1
        return None

    def advance(self, found: Found) -> Place:
        """Go on behind a record; returns where it stands."""
        head = found.head
        before = Place(found.segment, found.place, head.position, head.number)
        self.place = Place(found.segment, found.end, head.position + head.points, head.number + 1)
        return before

    def skip(self, position: int) -> None:
        """Take it that there is nothing before a position."""
        self.place = replace(self.place, position=position)

    def forget(self, segment: int) -> None:
        """Close a segment, which is removed: as long as it is open it takes room on the disk."""
        if self._file is not None and self._file.number == segment:
            self.close()

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _find(self, index: int, span: tuple[int, int], room: int | None) -> Found | None:
        patience, segment = self._patience, self._shelf[index]
        try:
            file = self._open(index)
            file.lenient |= patience.over
            found = find(file, self.place.offset, segment.size, span, room)
        except OSError as error:
            if ours(error):
                raise
            if not patience.over:
                patience.failed()
                raise
            self._give_up(segment.number, error)
            patience.worked()
            return None
        if file.error is not None:
            self._give_up(segment.number, file.error)
            file.error = None
        patience.worked()
        self._notices.works("read", f"the queue in {self._folder} can be read again")
        return found

    def _give_up(self, segment: int, error: OSError) -> None:
        self._notices.count("read", reason_of(error))
        if segment != self._sick:
            self._sick = segment
            self._notices.say(
                f"a part of the queue in {self._folder} still cannot be read: {text_of(error)}; "
                "what was in it is lost and counted. Look after that disk"
            )

    def _go(self, segment: int, offset: int) -> None:
        self.place = replace(self.place, segment=segment, offset=offset)

    def _open(self, index: int) -> SegmentFile:
        segment = self._shelf[index]
        if self._file is None or self._file.number != segment.number:
            self.close()
            try:
                self._file = SegmentFile(os.fspath(segment.path), segment.number)
            except (FileNotFoundError, NotADirectoryError):
                raise MissingError(index) from None
        return self._file
