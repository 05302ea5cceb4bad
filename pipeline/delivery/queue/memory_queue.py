"""A queue in memory, used if no folder is configured and as the base of the queue on disk."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import PointCounters
from pipeline.delivery.queue.error_reasons import OVER_SIZE, TOO_LARGE


class MemoryQueue:
    """A FIFO of records with one consumer, in memory. Records are lost when the process ends.

    Not thread-safe. Calls of the subclass `FallbackQueue`, which keeps records on disk, may block.

    Args:
        max_memory: maximum size of the waiting records in bytes. Records in flight do not count, so
            memory may hold one message more.
        counters: the counters of points; None to create them.
    """

    def __init__(self, max_memory: int, counters: PointCounters | None = None) -> None:
        self._max_memory = max_memory
        self._counters = counters or PointCounters()
        self._reason = OVER_SIZE
        """Why records that don't fit into memory are dropped."""
        self._taken: deque[Record] = deque()
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = self._waiting_points = 0

    def append(self, records: Sequence[Record]) -> None:
        """Append records. If there is no room, the oldest records are dropped and counted.

        A record that alone exceeds the maximum is dropped too.

        Never raises for a failing disk: `state` reports that.
        """
        for record in records:
            self._keep(record, TOO_LARGE if len(record.data) > self._max_memory else self._reason)

    def _keep(self, record: Record, reason: str) -> None:
        """Append a record; if it alone exceeds the maximum, drop it with `reason` instead."""
        if len(record.data) > self._max_memory:
            self._counters.drop(reason, record.points)
            return
        self._waiting.append(record)
        self._waiting_bytes += len(record.data)
        self._waiting_points += record.points
        self._shrink(self._max_memory, self._reason)

    def _pop(self) -> Record:
        record = self._waiting.popleft()
        self._waiting_bytes -= len(record.data)
        self._waiting_points -= record.points
        return record

    def _shrink(self, size: int, reason: str) -> None:
        """Drop the oldest waiting records until the rest has at most this size in bytes."""
        while self._waiting_bytes > size:
            self._counters.drop(reason, self._pop().points)

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records. They are in flight until they are settled or released.

        Returns as many records as fit into `most_bytes` and have the same signal, but at least one;
        none if the queue is empty.

        Raises:
            RuntimeError: records that were taken before are neither settled nor released.
        """
        if self._points_in_flight():
            raise RuntimeError("records that were taken before are neither settled nor released")
        size = 0
        while self._waiting:
            record = self._waiting[0]
            size += len(record.data)
            if self._taken and (size > most_bytes or record.signal != self._taken[0].signal):
                break
            self._taken.append(self._pop())
        return tuple(self._taken)

    def _points_in_flight(self) -> list[int]:
        """Return how many points each record in flight has."""
        return [record.points for record in self._taken]

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Remove the first `count` records that are in flight; the others stay in flight.

        Args:
            count: number of records.
            acked: number of their points that the receiver accepted.
            rejected: number of their points that the receiver refused permanently, by reason.
                `acked` and `rejected` together are all points of these records.

        Raises:
            ValueError: fewer records are in flight, or they have another number of points.
        """
        points = self._points_in_flight()
        if not 0 <= count <= len(points):
            raise ValueError(f"{count} records are settled, but {len(points)} were taken")
        self._counters.settle(sum(points[:count]), acked, rejected or {})
        self._forget(count)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._taken.popleft()

    def release(self) -> None:
        """Put back the records in flight. If there is no room, the oldest records are dropped."""
        while self._taken:
            record = self._taken.pop()
            self._waiting.appendleft(record)
            self._waiting_bytes += len(record.data)
            self._waiting_points += record.points
        self._shrink(self._max_memory, self._reason)

    def maintain(self, now_ns: int) -> None:
        """Do periodic work: flush to the disk, and retry a disk that failed.

        Args:
            now_ns: the monotonic clock.
        """

    def state(self) -> QueueState:
        """Return the state of the queue."""
        records = chain(self._taken, self._waiting)
        return QueueState(
            totals=self._counters.totals(self._queued()),
            recovered=0,
            bytes=self._waiting_bytes + sum(len(record.data) for record in self._taken),
            oldest_ns=next((record.created_ns for record in records), None),
        )

    def _queued(self) -> int:
        """Return the number of points that wait or are in flight."""
        return self._waiting_points + sum(record.points for record in self._taken)

    def close(self) -> None:
        """Put back the records in flight, flush, and close.

        Records that are only in memory are dropped, with the reason `SHUTDOWN`. `state` may still
        be called afterwards.
        """
        self.release()
        self._shrink(0, SHUTDOWN)
