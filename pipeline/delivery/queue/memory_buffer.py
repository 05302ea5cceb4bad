"""A buffer of records in memory."""

from collections import deque
from itertools import islice

from pipeline.delivery.contract import Record


class MemoryBuffer:
    """Records in order; the first of them may be in flight.

    A record that is evicted while it is in flight stays with the sender. It does not count for the
    size any more, and is not put back by `release`.
    """

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self.size = 0
        """Bytes, without records that were evicted in flight."""
        self.points = 0
        """Points, including those in flight, evicted or not."""
        self.in_flight = 0
        """Number of records in flight, evicted or not."""
        self._evicted_in_flight = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest record was made."""
        return self._records[0].created_ns if self._records else None

    @property
    def first(self) -> Record:
        """The oldest record."""
        return self._records[0]

    def push(self, record: Record) -> None:
        """Append a record."""
        self._records.append(record)
        self.size += len(record.data)
        self.points += record.points

    def evict_oldest(self) -> int:
        """Evict the oldest record that counts for the size.

        Returns:
            How many points are lost; 0 if it is in flight.
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
        """Return the oldest records that fit and have the same signal, but at least one.

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
        """Return how many points are in the first `count` records in flight."""
        return sum(record.points for record in islice(self._records, count))

    def forget(self, count: int) -> None:
        """Remove the first `count` records in flight."""
        for _ in range(count):
            record = self._records.popleft()
            self.in_flight -= 1
            if self._evicted_in_flight:
                self._evicted_in_flight -= 1
                self.points -= record.points
            else:
                self._leave(record)

    def pop(self) -> None:
        """Remove the oldest record, in flight or not, because it was stored elsewhere."""
        if self.in_flight:
            self.forget(1)
        else:
            self._leave(self._records.popleft())

    def release(self) -> int:
        """Put back the records in flight.

        Returns:
            How many points are lost, because their records were evicted in flight.
        """
        lost = self.points_of(self._evicted_in_flight)
        self.forget(self._evicted_in_flight)
        self.in_flight = 0
        return lost

    def _leave(self, record: Record) -> None:
        self.size -= len(record.data)
        self.points -= record.points


def check_count(count: int, in_flight: int) -> None:
    """Check that no more records are settled than are in flight.

    Raises:
        ValueError: more are settled.
    """
    if not 0 <= count <= in_flight:
        raise ValueError(f"{count} records are settled, but {in_flight} were taken")
