"""A queue on disk that falls back to memory while the disk can't be written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record
from pipeline.delivery.queue.disk.disk_queue import DiskQueue
from pipeline.delivery.queue.disk.shared_state import DiskShared
from pipeline.delivery.queue.error_reasons import is_permanent, reason_of
from pipeline.delivery.queue.memory_queue import MemoryBuffer, check_count, check_nothing_taken
from pipeline.model import Instant

MEMORY_BYTES: Final = 8 << 20
"""Maximum bytes of records that wait in memory."""

_RETRY_NS: Final = 1_000_000_000


class FallbackQueue:
    """Keeps records in a folder, and in memory while the folder can't be written.

    The order is kept: first the records on disk, then those in memory. Records in memory move to
    the disk when it works again. If memory is full, the oldest records in it are dropped, with the
    disk's error as reason.

    Args:
        path: the folder, which only this queue may use.
        max_size: maximum bytes on disk.
        kind: kind of the records.
        fsync_ns: interval of flushes in nanoseconds; 0 for never.
        now: the clocks.
        memory: maximum bytes of records in memory, not counting those in flight.

    Raises:
        LockedError: the folder is in use.
        KindError: the folder holds records of another kind.
        OSError: the folder can't be used, and waiting does not fix that.
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
        self._memory = MemoryBuffer()
        self._reason = ""
        self._tried_ns = 0
        shared = DiskShared(path, max_size, kind, fsync_ns, now)
        self._counters, self._fault_log = shared.counters, shared.fault_log
        self._in_flight = shared.in_flight
        self._disk = DiskQueue(shared)
        try:
            self._disk.open()
        except OSError as error:
            if is_permanent(error):
                raise
            self._on_disk_failure(error)

    def append(self, records: Sequence[Record]) -> None:
        """Append records; the oldest are dropped if there is no room."""
        due = self._reason and self._now().mono_ns - self._tried_ns >= _RETRY_NS
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
            self._counters.drop(self._reason, self._memory.push(record, self._max_memory))

    def _on_disk_failure(self, cause: OSError) -> None:
        self._reason = reason_of(cause)
        self._tried_ns = self._now().mono_ns
        self._fault_log.record_failure(
            "write", cause,
            f"cannot write to the queue in {self._path}: {{}}; data is kept in memory (up to "
            f"{self._max_memory >> 20} MiB) until the folder can be written again",
        )  # fmt: skip

    def _move_to_disk(self) -> bool:
        """Move records from memory to the disk, as far as it accepts them.

        Returns:
            Whether memory is empty. The disk is considered to work only after it accepted a record.
        """
        try:
            self._disk.open()
            if self._memory.in_flight and not self._disk.is_drained:
                # The folder was opened late and holds older records. They come before those in
                # memory, so that the records in flight from memory can't be put between.
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
        self._fault_log.record_recovery("write", f"the queue in {self._path} can be written again")

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records.

        Raises:
            RuntimeError: records that were taken before are neither settled nor released.
        """
        check_nothing_taken(len(self._in_flight) + self._memory.in_flight)
        records = self._disk.take(most_bytes)
        # Records on disk that can't be read now are still older than those in memory.
        return records if records or self._disk.queued else self._memory.take(most_bytes)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        """Remove the first `count` records that are in flight.

        Raises:
            ValueError: fewer records are in flight, or they have another number of points.
        """
        disk, memory = self._disk, self._memory
        check_count(count, len(self._in_flight) + memory.in_flight)
        on_disk = min(count, len(self._in_flight))
        points = self._in_flight.points(on_disk) + memory.points_of(count - on_disk)
        self._counters.settle(points, acked, rejected or {})
        memory.forget(count - on_disk)
        disk.forget(on_disk)

    def release(self) -> None:
        """Put back the records in flight, as far as there is room for them."""
        self._counters.drop(self._reason, self._memory.release())
        self._disk.release()

    def maintain(self, now_ns: int) -> None:
        """Flush if it is due, and retry a disk that failed."""
        if self._reason and now_ns - self._tried_ns >= _RETRY_NS:
            self._move_to_disk()
        self._disk.maintain(now_ns)

    def state(self) -> QueueState:
        """Return the state of the queue."""
        disk, memory = self._disk.state(), self._memory
        return replace(
            disk,
            totals=self._counters.totals(self._disk.queued + memory.points),
            bytes=disk.bytes + memory.size,
            oldest_ns=disk.oldest_ns if disk.oldest_ns is not None else memory.oldest_ns,
            writable=not self._reason,
        )

    def close(self) -> None:
        """Move the records in memory to the disk or drop them; flush, and release the folder."""
        self.release()
        if self._reason:
            self._move_to_disk()
        self._counters.drop(SHUTDOWN, self._memory.points)
        self._memory = MemoryBuffer()
        self._disk.close()
