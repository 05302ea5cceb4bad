"""The queue of those who name no folder."""

from collections.abc import Mapping, Sequence

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import PointCounters
from pipeline.delivery.queue.error_reasons import OVER_SIZE, TOO_LARGE
from pipeline.delivery.queue.memory_buffer import MemoryBuffer, check_count


class MemoryQueue:
    """Keeps records in memory; the process takes them with it.

    Args:
        max_size: bytes of records at most. What is in flight while newer records need the room is
            not counted, so that there may be one message more.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._counters = PointCounters()
        self._buffer = MemoryBuffer()

    def append(self, records: Sequence[Record]) -> None:
        """Put records at the end; the oldest make room."""
        waiting = self._buffer
        for record in records:
            if len(record.data) > self._max_size:
                self._counters.drop(TOO_LARGE, record.points)
                continue
            while waiting.size + len(record.data) > self._max_size:
                self._counters.drop(OVER_SIZE, waiting.evict_oldest())
            waiting.push(record)

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: what was taken before is neither settled nor released.
        """
        if self._buffer.in_flight:
            raise RuntimeError("what was taken before is neither settled nor released")
        return self._buffer.take(most_bytes)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Forget the first `count` of the records that were taken.

        Raises:
            ValueError: there are fewer, or other points.
        """
        check_count(count, self._buffer.in_flight)
        self._counters.settle(self._buffer.points_of(count), acked, rejected or {})
        self._buffer.forget(count)

    def release(self) -> None:
        """Put back what was taken, as far as there is room for it."""
        self._counters.drop(OVER_SIZE, self._buffer.release())

    def maintain(self, now_ns: int) -> None:
        """Do nothing: there is no disk."""

    def state(self) -> QueueState:
        """Return how it is doing."""
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
