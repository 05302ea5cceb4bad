"""Records that wait in memory."""

from collections import deque
from itertools import islice

from pipeline.delivery.contract import Record


class MemoryBuffer:
    """Records in their order, the first of which may be in flight.

    What is in flight and has to make room stays with whoever sends it, but takes no room here any
    more and doesn't come back: it is on loan.
    """

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self.size = 0
        """Bytes, without what is on loan."""
        self.points = 0
        """Points, those in flight and on loan included."""
        self.in_flight = 0
        """Records that are in flight, those on loan included."""
        self._evicted_in_flight = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def oldest_ns(self) -> int | None:
        """When the first was made."""
        return self._records[0].created_ns if self._records else None

    @property
    def first(self) -> Record:
        """The oldest."""
        return self._records[0]

    def push(self, record: Record) -> None:
        """Put a record at the end."""
        self._records.append(record)
        self.size += len(record.data)
        self.points += record.points

    def evict_oldest(self) -> int:
        """Give up the oldest that takes room.

        Returns:
            How many points are lost by that at once; none if it is in flight.
        """
        if self._evicted_in_flight < self.in_flight:
            self.size -= len(self._records[self._evicted_in_flight].data)
            self._evicted_in_flight += 1
            return 0
        record = self._records[self.in_flight]
        del self._records[self.in_flight]
        self._leave(record)
        return record.points

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the first as far as they fit and are of one signal, one at least.

        They are in flight from now on.
        """
        found: list[Record] = []
        size = 0
        for record in self._records:
            size += len(record.data)
            if found and (size > most_bytes or record.signal != found[0].signal):
                break
            found.append(record)
        self.in_flight = len(found)
        return tuple(found)

    def points_of(self, count: int) -> int:
        """Return how many points stand in the first of those in flight."""
        return sum(record.points for record in islice(self._records, count))

    def forget(self, count: int) -> None:
        """Forget the first of those in flight."""
        for _ in range(count):
            record = self._records.popleft()
            self.in_flight -= 1
            if self._evicted_in_flight:
                self._evicted_in_flight -= 1
                self.points -= record.points
            else:
                self._leave(record)

    def pop(self) -> None:
        """Forget the first, in flight or not: it has been put elsewhere."""
        if self.in_flight:
            self.forget(1)
        else:
            self._leave(self._records.popleft())

    def release(self) -> int:
        """Put back what is in flight.

        Returns:
            How many points are lost by that, having been on loan.
        """
        lost = self.points_of(self._evicted_in_flight)
        self.forget(self._evicted_in_flight)
        self.in_flight = 0
        return lost

    def _leave(self, record: Record) -> None:
        self.size -= len(record.data)
        self.points -= record.points


def check_count(count: int, in_flight: int) -> None:
    """Make sure that no more is settled than was taken.

    Raises:
        ValueError: it is.
    """
    if not 0 <= count <= in_flight:
        raise ValueError(f"{count} records are settled, but {in_flight} were taken")
