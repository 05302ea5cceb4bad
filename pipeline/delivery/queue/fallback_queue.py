"""A queue on disk that falls back to memory while the disk can't be written."""

import errno
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.delivery.contract import SHUTDOWN, QueueState, Record, Totals
from pipeline.delivery.queue.disk.record_format import MAX_RECORD_BYTES, RECORD_SIZE, SEGMENT_SIZE
from pipeline.delivery.queue.disk.record_reader import MISSING
from pipeline.delivery.queue.disk.shared_state import DiskShared, InFlightRecord
from pipeline.delivery.queue.disk.store import Store
from pipeline.delivery.queue.error_reasons import PERMANENT_ERRNOS, TOO_LARGE, reason_of
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import NS

MEMORY_BYTES: Final = 8 << 20
"""Maximum bytes of records that wait in memory."""

_RETRY_NS: Final = NS


class FallbackQueue(MemoryQueue):
    """Keeps records in a folder, and new records in memory while the folder can't be written.

    The order is kept: the records on disk come before those in memory. Records in memory move to
    the disk when it works again. If memory is full, the oldest records in memory are dropped, with
    the disk's error as reason. If the folder is removed or replaced, a new one is created.

    Args:
        shared: settings and state of the queue on disk.
        memory: maximum size of the records in memory, in bytes, not counting those in flight.

    Raises:
        LockedError: the folder is in use.
        KindError: the folder contains records of another kind.
        OSError: the folder can't be used, and waiting does not fix that.
    """

    def __init__(self, shared: DiskShared, memory: int = MEMORY_BYTES) -> None:
        super().__init__(memory, shared.counters)
        self._shared = shared
        self._fault_log = shared.fault_log
        self._in_flight = shared.in_flight
        self._reason = ""  # the error of a disk that can't be written
        self._tried_ns = 0
        self._flushed_ns: int | None = None
        self._store: Store | None = None
        self._recovered = 0
        self._left_on_disk: int | None = None
        try:
            self._open()
        except OSError as error:
            if error.errno in PERMANENT_ERRNOS:
                raise
            self._on_disk_failure(error)

    # -- the disk ------------------------------------------------------------------------------

    def _open(self) -> Store:
        """Return the store; open the folder if it is not open.

        Raises:
            LockedError: the folder is in use.
            KindError: the folder contains records of another kind.
            OSError: the folder can't be opened.
        """
        if self._store is not None:
            return self._store
        if self._left_on_disk is not None:
            raise RuntimeError("the queue is closed")
        self._store = store = Store(self._shared)
        self._recovered += store.recovered
        if store.recovered:
            self._fault_log.add_note(
                f"{store.recovered} points of an earlier run wait in {self._shared.path}"
            )
        return store

    def _put(self, record: Record, *, in_flight: bool = False) -> None:
        """Append a record on disk.

        Args:
            record: a record that is not too large.
            in_flight: whether the record is in flight already; then all records before it are too.

        Raises:
            OSError: the disk does not accept it.
        """
        if self._store is not None and not self._store.folder.exists():
            self._store.discard_all()
            self._store = None
            self._fault_log.add_note(
                f"{self._shared.path} was removed or replaced by another program; the points in it "
                "are lost. Do not change the folder of a queue while podgpu runs"
            )
        store = self._open()
        if in_flight and not store.is_drained:
            raise OSError(errno.EBUSY, "older records in the folder must be sent first")
        store.put(record, in_flight=in_flight)

    def _on_disk_failure(self, cause: OSError) -> None:
        self._reason = reason_of(cause)
        self._tried_ns = self._shared.now().mono_ns
        self._fault_log.record_failure(
            "write",
            cause,
            f"cannot write to the queue in {self._shared.path}: {{}}; data is kept in memory (up "
            f"to {self._max_memory >> 20} MiB) until the folder can be written again",
        )

    def _on_disk_recovery(self) -> None:
        self._reason = ""
        recovery = f"the queue in {self._shared.path} can be written again"
        self._fault_log.record_recovery("write", recovery)

    def _move_to_disk(self) -> bool:
        """Move records from memory to the disk, until the disk refuses one.

        Returns:
            Whether memory is empty. The disk is considered to work only after it accepted a record.
        """
        try:
            if self._taken and not self._open().is_drained:
                # The folder was opened late and holds older records. They come before those in
                # memory, so that the records in flight from memory can't be put between.
                self._tried_ns = self._shared.now().mono_ns
                return False
            moved = bool(self._taken or self._waiting)
            while self._taken:
                self._put(self._taken[0], in_flight=True)
                self._taken.popleft()
            while self._waiting:
                self._put(self._waiting[0])
                self._pop()
            self._open().remove_finished()
        except OSError as error:
            self._on_disk_failure(error)
            return False
        if moved:
            self._on_disk_recovery()
        return True

    @property
    def _queued_on_disk(self) -> int:
        on_disk = self._store.queued if self._store is not None else self._left_on_disk or 0
        return on_disk + self._in_flight.lost_points.total()

    def _take_from_disk(self, most_bytes: int) -> tuple[Record, ...]:
        records: list[Record] = []
        room: int | None = None
        signal: int | None = None
        while record := self._next(room, signal):
            records.append(record)
            signal = record.signal
            room = (most_bytes if room is None else room) - len(record.data)
        return tuple(records)

    def _next(self, room: int | None, signal: int | None) -> Record | None:
        """Take the next record on disk, if it fits into `room` and has the signal; None for any."""
        while (store := self._store) is not None:
            try:
                found = store.reader.peek(store.end, room)
            except MISSING:
                if self._in_flight:
                    return None
                store.next_segment_missing()
                continue
            except OSError as error:
                self._fault_log.record_failure(
                    "read",
                    error,
                    f"cannot read the queue in {self._shared.path}: {{}}; podgpu retries for a "
                    "minute, and then skips what cannot be read",
                )
                return None
            position = found.header.position if found else store.end
            if position > store.reader.position.position:
                # Not between records in flight: these are put back all together or not at all.
                if self._in_flight:
                    return None
                store.count_lost(position)
                store.save()
            if found is None or not found.body or signal not in {None, found.header.signal}:
                return None
            head, place = found.header, store.reader.advance(found)
            self._in_flight.append(InFlightRecord(place, head.points, head.created_ns))
            return Record(found.body, head.points, head.created_ns, head.signal)
        return None

    # -- disk and memory -----------------------------------------------------------------------

    def append(self, records: Sequence[Record]) -> None:
        """Append records; if there is no room, the oldest records are dropped."""
        due = self._reason and self._shared.now().mono_ns - self._tried_ns >= _RETRY_NS
        if due:
            due = self._move_to_disk()
        for record in records:
            if self._drop_too_large(record):
                continue
            if due or not self._reason:
                try:
                    self._put(record)
                    self._on_disk_recovery()
                    continue
                except OSError as error:
                    self._on_disk_failure(error)
                    due = False
            self._keep(record, self._reason)

    def _drop_too_large(self, record: Record) -> bool:
        room = min(self._shared.max_size - SEGMENT_SIZE - RECORD_SIZE, MAX_RECORD_BYTES)
        if len(record.data) <= room:
            return False
        self._counters.drop(TOO_LARGE, record.points)
        return True

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records, all from disk or all from memory; see `MemoryQueue.take`."""
        if not self._points_in_flight():
            records = self._take_from_disk(most_bytes)
            # Records on disk that can't be read now are still older than those in memory.
            if records or self._queued_on_disk:
                return records
        return super().take(most_bytes)

    def _points_in_flight(self) -> list[int]:
        return [record.points for record in self._in_flight] + super()._points_in_flight()

    def _forget(self, count: int) -> None:
        on_disk = min(count, len(self._in_flight))
        for _ in range(on_disk):
            self._in_flight.popleft()
        super()._forget(count - on_disk)
        if self._store is not None:
            self._store.remove_finished()

    def release(self) -> None:
        """Put back the records in flight.

        Dropped are those that are no longer on disk, and the oldest in memory for which there is no
        room.
        """
        super().release()
        for reason, points in self._in_flight.lost_points.items():
            self._counters.drop(reason, points)
        place = self._in_flight.position
        self._in_flight.clear()
        if self._store is not None:
            if place is not None:
                self._store.reader.position = place
            self._store.save()

    def maintain(self, now_ns: int) -> None:
        """Flush if it is due, and retry a disk that failed."""
        if self._reason and now_ns - self._tried_ns >= _RETRY_NS:
            self._move_to_disk()
        due = self._flushed_ns is None or now_ns - self._flushed_ns >= self._shared.fsync_ns
        if self._store is not None and due:
            self._flushed_ns = now_ns
            self._store.flush()

    def state(self) -> QueueState:
        """Return the state of the queue."""
        oldest_ns = self._oldest_ns()  # which may find corrupt records
        self._fault_log.summarize_corruption(self._shared.path, self._shared.now().mono_ns)
        notes, warnings = self._fault_log.take_messages()
        memory = super().state()
        return replace(
            memory,
            recovered=self._recovered,
            bytes=memory.bytes + (self._store.size if self._store is not None else 0),
            oldest_ns=oldest_ns if oldest_ns is not None else memory.oldest_ns,
            writable=not self._reason,
            faults=dict(self._fault_log.faults),
            notes=notes,
            warnings=warnings,
            previous=self._counters.previous or Totals(),
        )

    def _queued(self) -> int:
        return self._queued_on_disk + super()._queued()

    def _oldest_ns(self) -> int | None:
        if self._in_flight or self._store is None:
            return self._in_flight.oldest_ns
        return self._store.reader.oldest_ns(self._store.end)

    def close(self) -> None:
        """Move the records in memory to the disk, or drop them; flush, and release the folder."""
        self.release()
        if self._reason:
            self._move_to_disk()
        self._shrink(0, SHUTDOWN)
        self._fault_log.summarize_corruption(self._shared.path, None)
        self._left_on_disk = self._queued_on_disk
        if self._store is not None:
            self._store.save()
            self._store.flush()
            self._store.close()
            self._store = None
