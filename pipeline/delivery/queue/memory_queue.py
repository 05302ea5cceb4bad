"""A queue in memory, used if no folder is configured."""

from collections.abc import Mapping, Sequence

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import PointCounters
from pipeline.delivery.queue.error_reasons import OVER_SIZE, TOO_LARGE
from pipeline.delivery.queue.memory_buffer import MemoryBuffer, check_count


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
        buffer = self._buffer
        for record in records:
            if len(record.data) > self._max_size:
                self._counters.drop(TOO_LARGE, record.points)
                continue
            while buffer.size + len(record.data) > self._max_size:
                self._counters.drop(OVER_SIZE, buffer.evict_oldest())
            buffer.push(record)

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: records that were taken before are neither settled nor released.
        """
        if self._buffer.in_flight:
            raise RuntimeError("records that were taken before are neither settled nor released")
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
