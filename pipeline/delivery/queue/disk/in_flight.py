"""Records of the disk that are in flight."""

from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice

from pipeline.delivery.queue.disk.record_reader import ReadPosition


@dataclass(slots=True)
class InFlightRecord:
    """A record in flight.

    Attributes:
        position: where it stands.
        points: how many stand in it.
        created_ns: when it was made.
        lost_reason: why its segment is gone; empty while it is there.
    """

    position: ReadPosition
    points: int
    created_ns: int
    lost_reason: str = ""


class InFlightRecords:
    """All that are in flight, oldest first. Those whose segments are gone come first."""

    def __init__(self) -> None:
        self._records: deque[InFlightRecord] = deque()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def oldest_ns(self) -> int | None:
        """When the first was made."""
        return self._records[0].created_ns if self._records else None

    @property
    def position(self) -> ReadPosition | None:
        """Where the first stands that is still on the disk."""
        return next((taken.position for taken in self._records if not taken.lost_reason), None)

    @property
    def lost_points(self) -> Counter[str]:
        """Points of those that are no longer on the disk, by what became of them there."""
        found: Counter[str] = Counter()
        for taken in self._records:
            if not taken.lost_reason:
                break
            found[taken.lost_reason] += taken.points
        return found

    def put(self, record: InFlightRecord) -> None:
        """Add one."""
        self._records.append(record)

    def points(self, count: int) -> int:
        """Return how many points stand in the first of them."""
        return sum(taken.points for taken in islice(self._records, count))

    def forget(self, count: int) -> None:
        """Forget the first of them."""
        for _ in range(count):
            self._records.popleft()

    def clear(self) -> None:
        """Forget all of them."""
        self._records.clear()

    def mark_lost(self, segment: int | None, reason: str) -> None:
        """Note that a segment is gone, or all of them.

        One in flight behind others that are still on the disk isn't noted: were these put back, it
        would be missed, and counted, when its place is come to again.
        """
        for taken in self._records:
            if not taken.lost_reason:
                if segment is not None and taken.position.segment != segment:
                    break
                taken.lost_reason = reason
