"""The queue of those who name no folder."""

from collections.abc import Mapping, Sequence

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import Tally
from pipeline.delivery.queue.error_reasons import OVER_SIZE, TOO_LARGE
from pipeline.delivery.queue.memory_buffer import Waiting, check_count


class MemoryQueue:
    """Keeps records in memory; the process takes them with it.

    Args:
        max_size: bytes of records at most. What is in flight while newer records need the room is
            not counted, so that there may be one message more.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._tally = Tally()
        self._waiting = Waiting()

    def append(self, records: Sequence[Record]) -> None:
        """Put records at the end; the oldest make room."""
        waiting = self._waiting
        for record in records:
            if len(record.data) > self._max_size:
                self._tally.drop(TOO_LARGE, record.points)
                continue
            while waiting.size + len(record.data) > self._max_size:
                self._tally.drop(OVER_SIZE, waiting.shed())
            waiting.push(record)

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: what was taken before is neither settled nor released.
        """
        if self._waiting.taken:
            raise RuntimeError("what was taken before is neither settled nor released")
        return self._waiting.take(most_bytes)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Forget the first `count` of the records that were taken.

        Raises:
            ValueError: there are fewer, or other points.
        """
        check_count(count, self._waiting.taken)
        self._tally.settle(self._waiting.points_of(count), acked, rejected or {})
        self._waiting.forget(count)

    def release(self) -> None:
        """Put back what was taken, as far as there is room for it."""
        self._tally.drop(OVER_SIZE, self._waiting.release())

    def tend(self, now_ns: int) -> None:
        """Do nothing: there is no disk."""

    def state(self) -> QueueState:
        """Return how it is doing."""
        return QueueState(
            totals=self._tally.totals(self._waiting.points),
            recovered=0,
            bytes=self._waiting.size,
            oldest_ns=self._waiting.oldest_ns,
        )

    def close(self) -> None:
        """Drop everything."""
        self._tally.drop(SHUTDOWN, self._waiting.points)
        self._waiting = Waiting()
