"""Reading records in their order, over all segments."""

import os
from dataclasses import dataclass, replace

from pipeline.delivery.queue.disk.layout import SEGMENT_SIZE
from pipeline.delivery.queue.disk.reading import Found, SegmentFile, find
from pipeline.delivery.queue.disk.shelf import Segment, Shelf
from pipeline.delivery.queue.tally import Notices


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
        notices: where it is noted that the disk can't be read.
    """

    def __init__(self, shelf: Shelf, place: Place, notices: Notices) -> None:
        self.place = place
        self._shelf = shelf
        self._notices = notices
        self._file: SegmentFile | None = None
        self._seen: tuple[Place, int, Found | None] | None = None

    def oldest_ns(self, end: int) -> int | None:
        """Return when the next record was made, if there is one.

        Raises:
            MissingError: its segment is not there.
            OSError: it can't be opened.
        """
        if self._seen is None or self._seen[:2] != (self.place, end):
            found = self.look(end, room=-1)  # which may change the place
            self._seen = self.place, end, found
        return self._seen[2].head.made_ns if self._seen[2] else None

    def look(self, end: int, room: int | None) -> Found | None:
        """Return the next record, and leave it.

        Args:
            end: points before the end of all.
            room: bytes that it may have; one that is larger has no body. None for any.

        Raises:
            MissingError: its segment is not there.
            OSError: it can't be opened.
        """
        index = self._shelf.index(self.place.segment)
        while index < len(self._shelf):
            segment = self._shelf[index]
            if segment.number != self.place.segment:
                self._go(segment.number, start_of(segment))
            if self.place.offset < segment.size:
                span = self.place.position, self._shelf.first_after(index, end)
                file = self._open(index)
                found = find(file, self.place.offset, segment.size, span, room)
                self._note(file)
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

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

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

    def _note(self, file: SegmentFile) -> None:
        if file.error is not None:
            self._notices.fails(
                "read", file.error,
                "cannot read a segment of the queue: {}; what can't be read is lost and counted. "
                "Look after that disk",
            )  # fmt: skip
            file.error = None
