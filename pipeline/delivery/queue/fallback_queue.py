"""The queue on the disk with memory behind it, for when the disk takes nothing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.counters import FaultLog, PointCounters
from pipeline.delivery.queue.disk.disk_queue import DiskQueue
from pipeline.delivery.queue.error_reasons import is_permanent, reason_of
from pipeline.delivery.queue.memory_buffer import MemoryBuffer, check_count
from pipeline.model import Instant

MEMORY_BYTES: Final = 8 << 20
"""Bytes of records that wait in memory at most."""

_AGAIN_NS: Final = 1_000_000_000


class FallbackQueue:
    """Keeps records in a folder, and in memory while that takes none.

    The order stays: first what is on the disk, then what is in memory, which moves to the disk once
    that works again. What finds no room in memory costs the oldest there; it is dropped for the
    reason that the disk gave.

    Args:
        path: the folder, which belongs to this queue alone.
        max_size: bytes that it may take on the disk.
        kind: a word for what the records are.
        fsync_ns: flush so often, in nanoseconds; 0 for never.
        now: the clocks.
        memory: bytes of records in memory at most, beside those in flight.

    Raises:
        LockedError: somebody else has the folder.
        KindError: records of another kind are in it.
        OSError: the folder can't be had, and waiting doesn't mend that.
    """

    def __init__(
        self,
        path: Path,
        max_size: int,
        *,
        kind: str,
        fsync_ns: int,
        now: Callable[[], Instant],
        memory: int = MEMORY_BYTES,
    ) -> None:
        self._path = path
        self._now = now
        self._max_memory = memory
        self._counters, self._fault_log = PointCounters(), FaultLog()
        self._memory = MemoryBuffer()
        self._reason = ""
        self._tried_ns = 0
        self._disk = DiskQueue(
            path,
            max_size,
            kind=kind,
            fsync_ns=fsync_ns,
            now=now,
            counters=self._counters,
            fault_log=self._fault_log,
        )
        try:
            self._disk.open()
        except OSError as error:
            if is_permanent(error):
                raise
            self._on_disk_failure(error)

    def append(self, records: Sequence[Record]) -> None:
        """Put records at the end; the oldest make room."""
        due = self._reason and self._now().mono_ns - self._tried_ns >= _AGAIN_NS
        if due:
            due = self._move_to_disk()
        for record in records:
            if self._disk.drop_too_large(record):
                continue
            if due or not self._reason:
                try:
                    self._disk.put(record)
                    self._on_disk_recovery()
                    continue
                except OSError as error:
                    self._on_disk_failure(error)
                    due = False
            self._append_to_memory(record)

    def _append_to_memory(self, record: Record) -> None:
        memory = self._memory
        if len(record.data) > self._max_memory:
            self._counters.drop(self._reason, record.points)
            return
        while memory.size + len(record.data) > self._max_memory:
            self._counters.drop(self._reason, memory.evict_oldest())
        memory.push(record)

    def _on_disk_failure(self, cause: OSError) -> None:
        self._reason = reason_of(cause)
        self._tried_ns = self._now().mono_ns
        self._fault_log.record_failure(
            "write", cause,
            f"cannot write to the queue in {self._path}: {{}}; data waits in memory, of which "
            f"there is {self._max_memory >> 20} MiB, until that folder takes it again",
        )  # fmt: skip

    def _move_to_disk(self) -> bool:
        """Move what is in memory to the disk, as far as that takes it.

        Returns:
            Whether nothing is left in it. That the disk takes data again is known when it took
            some, and not before.
        """
        try:
            self._disk.open()
            if self._memory.in_flight and not self._disk.is_drained:
                # A folder that came late with data of its own: that stands before all of memory,
                # and what is in flight of that can't go in between.
                self._tried_ns = self._now().mono_ns
                return False
            moved = bool(self._memory)
            while self._memory:
                self._disk.put(self._memory.first, in_flight=self._memory.in_flight > 0)
                self._memory.pop()
        except OSError as error:
            self._on_disk_failure(error)
            return False
        self._disk.forget(0)
        if moved:
            self._on_disk_recovery()
        return True

    def _on_disk_recovery(self) -> None:
        self._reason = ""
        self._fault_log.record_recovery(
            "write", f"the queue in {self._path} is written to the disk again"
        )

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: what was taken before is neither settled nor released.
        """
        if self._disk.in_flight or self._memory.in_flight:
            raise RuntimeError("what was taken before is neither settled nor released")
        records = self._disk.take(most_bytes)
        # What can't be read just now stands before what is in memory.
        return records if records or self._disk.queued else self._memory.take(most_bytes)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Forget the first `count` of the records that were taken.

        Raises:
            ValueError: there are fewer, or other points.
        """
        disk, memory = self._disk, self._memory
        check_count(count, disk.in_flight + memory.in_flight)
        on_disk = min(count, disk.in_flight)
        points = disk.points_of(on_disk) + memory.points_of(count - on_disk)
        self._counters.settle(points, acked, rejected or {})
        memory.forget(count - on_disk)
        disk.forget(on_disk)

    def release(self) -> None:
        """Put back what was taken, as far as there is room for it."""
        self._counters.drop(self._reason, self._memory.release())
        self._disk.release()

    def maintain(self, now_ns: int) -> None:
        """Flush, if it is time, and try a disk that failed."""
        if self._reason and now_ns - self._tried_ns >= _AGAIN_NS:
            self._move_to_disk()
        self._disk.maintain(now_ns)

    def state(self) -> QueueState:
        """Return how it is doing."""
        disk, memory = self._disk.state(), self._memory
        return QueueState(
            totals=self._counters.totals(self._disk.queued + memory.points),
            recovered=disk.recovered,
            bytes=disk.bytes + memory.size,
            oldest_ns=disk.oldest_ns if disk.oldest_ns is not None else memory.oldest_ns,
            writable=not self._reason,
            faults=disk.faults,
            notes=disk.notes,
            warnings=disk.warnings,
            previous=disk.previous,
        )

    def close(self) -> None:
        """Move to the disk what is in memory, or drop it; flush, and give the folder back."""
        self.release()
        if self._reason:
            self._move_to_disk()
        self._counters.drop(SHUTDOWN, self._memory.points)
        self._memory = MemoryBuffer()
        self._disk.close()
