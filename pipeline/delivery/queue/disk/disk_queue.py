"""A queue on disk."""

import errno

from pipeline.delivery.contract import QueueState, Record
from pipeline.delivery.queue.disk.record_format import MAX_RECORD_BYTES, RECORD_SIZE, SEGMENT_SIZE
from pipeline.delivery.queue.disk.record_reader import SegmentMissingError
from pipeline.delivery.queue.disk.segment_reader import FoundRecord
from pipeline.delivery.queue.disk.shared_state import DiskShared, InFlightRecord
from pipeline.delivery.queue.disk.store import Store
from pipeline.delivery.queue.error_reasons import TOO_LARGE


class DiskQueue:
    """Keeps records in a folder. `FallbackQueue` keeps those that the disk does not accept.

    It is closed until `open` is called; `put` also opens it. If the folder is removed or replaced,
    it is opened again in the same way.

    Args:
        shared: settings and state of the queue.
    """

    def __init__(self, shared: DiskShared) -> None:
        self._shared = shared
        self._counters, self._fault_log = shared.counters, shared.fault_log
        self._in_flight = shared.in_flight
        self._flushed_ns: int | None = None
        self._store: Store | None = None
        self._recovered = 0
        self._opened_before = False
        self._left_on_disk: int | None = None

    def open(self) -> None:
        """Open the folder, if it is not open.

        Raises:
            LockedError: the folder is in use.
            KindError: the folder holds records of another kind.
            OSError: it can't be opened.
        """
        if self._store is not None:
            return
        if self._left_on_disk is not None:
            raise RuntimeError("the queue is closed")
        self._store = store = Store(self._shared, first=not self._opened_before)
        self._recovered += store.recovered
        if store.recovered:
            self._fault_log.add_note(
                f"{store.recovered} points of an earlier run wait in {self._shared.path}"
            )
        self._opened_before = True

    def drop_too_large(self, record: Record) -> bool:
        """Drop a record that is larger than the queue may be; return whether it was dropped."""
        room = min(self._shared.max_size - SEGMENT_SIZE - RECORD_SIZE, MAX_RECORD_BYTES)
        if len(record.data) <= room:
            return False
        self._counters.drop(TOO_LARGE, record.points)
        return True

    def put(self, record: Record, *, in_flight: bool = False) -> None:
        """Append a record.

        Args:
            record: not too large.
            in_flight: whether it is in flight already; then all records before it are too.

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
        self.open()
        if self._store is not None:
            if in_flight and not self.is_drained:
                raise OSError(errno.EBUSY, "records in the folder must be sent first")
            self._store.put(record, in_flight=in_flight)

    @property
    def is_drained(self) -> bool:
        """Whether all records are settled or in flight."""
        return self._store is None or self._store.is_drained

    @property
    def queued(self) -> int:
        """Points that wait."""
        on_disk = self._store.queued if self._store is not None else self._left_on_disk or 0
        return on_disk + self._in_flight.lost_points.total()

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records. None may be in flight."""
        records: list[Record] = []
        room: int | None = None
        signal: int | None = None
        while found := self._next(room, signal):
            head, signal = found.header, found.header.signal
            if not found.body:
                break
            records.append(Record(found.body, head.points, head.created_ns, signal))
            room = (most_bytes if room is None else room) - head.length
        return tuple(records)

    def _next(self, room: int | None, signal: int | None) -> FoundRecord | None:
        """Take the next record, if it fits into `room` and has the signal."""
        while (store := self._store) is not None:
            try:
                found = store.reader.peek(store.end, room)
            except SegmentMissingError as missing:
                if self._in_flight:
                    return None
                store.segment_missing(missing.index)
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
            if found is not None and signal not in {None, found.header.signal}:
                return None
            if found is not None and found.body:
                place = store.reader.advance(found)
                self._in_flight.append(
                    InFlightRecord(place, found.header.points, found.header.created_ns)
                )
            return found
        return None

    def forget(self, count: int) -> None:
        """Remove the first `count` records in flight, and save that. They are counted already."""
        self._in_flight.forget(count)
        if self._store is not None:
            self._store.remove_finished()

    def release(self) -> None:
        """Put back the records in flight, as far as they are still on disk."""
        for reason, points in self._in_flight.lost_points.items():
            self._counters.drop(reason, points)
        place = self._in_flight.position
        self._in_flight.clear()
        if self._store is not None:
            if place is not None:
                self._store.reader.position = place
            self._store.save()

    def maintain(self, now_ns: int) -> None:
        """Flush if it is due."""
        due = self._flushed_ns is None or now_ns - self._flushed_ns >= self._shared.fsync_ns
        if self._store is not None and due:
            self._flushed_ns = now_ns
            self._store.flush()

    def state(self) -> QueueState:
        """Return the state of the queue."""
        oldest_ns = self._oldest_ns()  # which may find corrupt records
        self._fault_log.summarize_corruption(self._shared.now().mono_ns)
        notes, warnings = self._fault_log.take_messages()
        return QueueState(
            totals=self._counters.totals(self.queued),
            recovered=self._recovered,
            bytes=self._store.size if self._store is not None else 0,
            oldest_ns=oldest_ns,
            faults=self._fault_log.faults,
            notes=notes,
            warnings=warnings,
            previous=self._counters.previous,
        )

    def _oldest_ns(self) -> int | None:
        if self._in_flight or self._store is None:
            return self._in_flight.oldest_ns
        return self._store.reader.oldest_ns(self._store.end)

    def close(self) -> None:
        """Flush, and release the folder. Records in flight are put back."""
        self.release()
        self._fault_log.summarize_corruption(None)
        self._left_on_disk = self.queued
        if self._store is not None:
            self._store.flush()
            self._store.close()
            self._store = None
