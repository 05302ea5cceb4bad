"""Records from disk that are in flight."""

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice

from pipeline.delivery.queue.disk.record_reader import ReadPosition


@dataclass(slots=True)
class InFlightRecord:
    """A record in flight.

    Attributes:
        position: where it is on disk.
        points: number of points in it.
        created_ns: when it was made.
        lost_reason: why its segment was removed; empty if it was not.
    """

    position: ReadPosition
    points: int
    created_ns: int
    lost_reason: str = ""


class InFlightRecords:
    """All records in flight, oldest first. Those whose segments were removed come first."""

    def __init__(self) -> None:
        self._records: deque[InFlightRecord] = deque()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest record was made."""
        return self._records[0].created_ns if self._records else None

    @property
    def position(self) -> ReadPosition | None:
        """Position of the oldest record that is still on disk."""
        return next((record.position for record in self._records if not record.lost_reason), None)

    @property
    def lost_points(self) -> Counter[str]:
        """Points of records that are no longer on disk, by reason."""
        found: Counter[str] = Counter()
        for record in self._records:
            if not record.lost_reason:
                break
            found[record.lost_reason] += record.points
        return found

    def put(self, record: InFlightRecord) -> None:
        """Append a record."""
        self._records.append(record)

    def points(self, count: int) -> int:
        """Return how many points are in the first `count` records."""
        return sum(record.points for record in islice(self._records, count))

    def forget(self, count: int) -> None:
        """Remove the first `count` records."""
        for _ in range(count):
            self._records.popleft()

    def clear(self) -> None:
        """Remove all records."""
        self._records.clear()

    def mark_lost(self, segment: int | None, reason: str) -> None:
        """Note that a segment, or all segments if None, was removed.

        Records behind others that are still on disk are not marked. If those are put back, the
        reader detects and counts the missing points when it reaches them.
        """
        for record in self._records:
            if not record.lost_reason:
                if segment is not None and record.position.segment != segment:
                    break
                record.lost_reason = reason
