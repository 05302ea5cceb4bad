"""A queue in memory, used if no folder is configured or while its disk can't be written."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import PointCounters
from pipeline.delivery.queue.error_reasons import OVER_SIZE, TOO_LARGE


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

    def push(self, record: Record, room: int) -> int:
        """Append a record, and evict the oldest ones until all fit into `room` bytes.

        Returns:
            How many points are lost: of evicted records that are not in flight, or of this record
            if it alone is larger than `room`.
        """
        if len(record.data) > room:
            return record.points
        lost = 0
        while self.size + len(record.data) > room:
            lost += self._evict_oldest()
        self._records.append(record)
        self.size += len(record.data)
        self.points += record.points
        return lost

    def _evict_oldest(self) -> int:
        """Evict the oldest record that counts for the size; return how many points are lost."""
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


def check_nothing_taken(in_flight: int) -> None:
    """Check that no records are in flight before more are taken.

    Raises:
        RuntimeError: some are.
    """
    if in_flight:
        raise RuntimeError("records that were taken before are neither settled nor released")


class MemoryQueue:
    """Keeps records in memory. They are lost when the process ends.

    Args:
        max_size: maximum bytes of records. Records in flight that newer records have displaced do
            not count, so that memory may hold one message more.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._counters = PointCounters()
        self._buffer = MemoryBuffer()

    def append(self, records: Sequence[Record]) -> None:
        """Append records; the oldest are dropped if there is no room."""
        for record in records:
            reason = TOO_LARGE if len(record.data) > self._max_size else OVER_SIZE
            self._counters.drop(reason, self._buffer.push(record, self._max_size))

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: records that were taken before are neither settled nor released.
        """
        check_nothing_taken(self._buffer.in_flight)
        return self._buffer.take(most_bytes)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Remove the first `count` records that are in flight.

        Raises:
            ValueError: fewer records are in flight, or they have another number of points.
        """
        check_count(count, self._buffer.in_flight)
        self._counters.settle(self._buffer.points_of(count), acked, rejected or {})
        self._buffer.forget(count)

    def release(self) -> None:
        """Put back the records in flight, as far as there is room for them."""
        self._counters.drop(OVER_SIZE, self._buffer.release())

    def maintain(self, now_ns: int) -> None:
        """Do nothing: there is no disk."""

    def state(self) -> QueueState:
        """Return the state of the queue."""
        return QueueState(
            totals=self._counters.totals(self._buffer.points),
            recovered=0,
            bytes=self._buffer.size,
            oldest_ns=self._buffer.oldest_ns,
        )

    def close(self) -> None:
        """Drop everything."""
        self._counters.drop(SHUTDOWN, self._buffer.points)
        self._buffer = MemoryBuffer()
