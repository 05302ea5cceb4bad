"""The queue on the disk."""

import errno
from collections.abc import Callable
from pathlib import Path

from pipeline.delivery.contract import QueueState, Record
from pipeline.delivery.queue.counters import Notices, Tally
from pipeline.delivery.queue.disk.in_flight import Flight, Taken
from pipeline.delivery.queue.disk.record_format import LONGEST, RECORD_SIZE, SEGMENT_SIZE
from pipeline.delivery.queue.disk.record_reader import MissingError
from pipeline.delivery.queue.disk.retry_budget import Patience
from pipeline.delivery.queue.disk.segment_reader import Found
from pipeline.delivery.queue.disk.settings import Setup
from pipeline.delivery.queue.disk.store import Store
from pipeline.delivery.queue.error_reasons import TOO_LARGE
from pipeline.model import Instant


class DiskQueue:
    """Keeps records in a folder; `SafeQueue` has what the disk doesn't take.

    It is closed until `open` is called, and opens by itself for the first record. A folder that is
    removed or replaced by another meanwhile is opened again in the same way.

    Args:
        path: the folder, which belongs to this queue alone.
        max_size: bytes that it may take.
        kind: a word for what the records are.
        fsync_ns: flush so often, in nanoseconds; 0 for never.
        now: the clocks.
        tally: where to count points.
        notices: where to tell faults.
    """

    def __init__(
        self,
        path: Path,
        max_size: int,
        *,
        kind: str,
        fsync_ns: int,
        now: Callable[[], Instant],
        tally: Tally,
        notices: Notices,
    ) -> None:
        self._tally = tally
        self._notices = notices
        self._flight = Flight()
        self._now = now
        self._setup = Setup(
            path=path,
            max_size=max_size,
            kind=kind,
            flushes=fsync_ns > 0,
            now=now,
            tally=tally,
            notices=notices,
            flight=self._flight,
            patience=Patience(now),
        )
        self._fsync_ns = fsync_ns
        self._flushed_ns: int | None = None
        self._store: Store | None = None
        self._recovered = 0
        self._known = False
        self._left: int | None = None

    def open(self) -> None:
        """Open the folder, if it isn't open.

        Raises:
            LockedError: somebody else has it.
            KindError: records of another kind are in it.
            OSError: it can't be opened.
        """
        if self._store is not None:
            return
        if self._left is not None:
            raise RuntimeError("the queue is closed")
        self._store = store = Store(self._setup, first=not self._known)
        self._recovered += store.recovered
        if store.recovered:
            self._notices.say(f"{store.recovered} points were waiting in {self._setup.path}")
        self._known = True

    def drop_too_large(self, record: Record) -> bool:
        """Drop a record for which there can be no room."""
        room = min(self._setup.max_size - SEGMENT_SIZE - RECORD_SIZE, LONGEST)
        if len(record.data) <= room:
            return False
        self._tally.drop(TOO_LARGE, record.points)
        return True

    def put(self, record: Record, *, taken: bool = False) -> None:
        """Put a record at the end.

        Args:
            record: not too large.
            taken: whether it is in flight already, and all before it are too.

        Raises:
            OSError: the disk doesn't take it.
        """
        if self._store is not None and self._store.moved():
            self._store.abandon()
            self._store = None
            self._notices.say(
                f"{self._setup.path} was removed or replaced by somebody; what was in it is lost. "
                "The folder of a queue belongs to it alone"
            )
        self.open()
        if self._store is not None:
            if taken and not self.drained:
                raise OSError(errno.EBUSY, "what waits in it goes first")
            self._store.put(record, taken=taken)

    @property
    def drained(self) -> bool:
        """Whether all of it is in flight or done with."""
        return self._store is None or self._store.drained

    @property
    def taken(self) -> int:
        """Records in flight."""
        return len(self._flight)

    @property
    def queued(self) -> int:
        """Points that wait."""
        on_disk = self._store.queued if self._store is not None else self._left or 0
        return on_disk + self._flight.lost.total()

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        """Return the oldest records; none is in flight."""
        records: list[Record] = []
        room: int | None = None
        signal: int | None = None
        while found := self._next(room, signal):
            head, signal = found.head, found.head.signal
            if not found.body:
                break
            records.append(Record(found.body, head.points, head.made_ns, signal))
            room = (most_bytes if room is None else room) - head.length
        return tuple(records)

    def _next(self, room: int | None, signal: int | None) -> Found | None:
        """Take the next record, if there is one within `room` and of that signal."""
        while (store := self._store) is not None:
            try:
                found = store.reader.look(store.end, room)
            except MissingError as missing:
                if self._flight:
                    return None
                store.miss(missing.index)
                continue
            except OSError as error:
                self._notices.fails(
                    "read",
                    error,
                    f"cannot read the queue in {self._setup.path}: {{}}; it is tried again, and "
                    "given up after a minute what can't be read by then",
                )
                return None
            position = found.head.position if found else store.end
            if position > store.reader.place.position:
                # Never amid what is in flight: that is put back as a whole, or not.
                if self._flight:
                    return None
                store.lose(position)
                store.save()
            if found is not None and signal not in {None, found.head.signal}:
                return None
            if found is not None and found.body:
                place = store.reader.advance(found)
                self._flight.put(Taken(place, found.head.points, found.head.made_ns))
            return found
        return None

    def points_of(self, count: int) -> int:
        """Return how many points stand in the first of those in flight."""
        return self._flight.points(count)

    def forget(self, count: int) -> None:
        """Forget the first in flight, which are counted already, and note that in the folder."""
        self._flight.forget(count)
        if self._store is not None:
            self._store.sweep()

    def release(self) -> None:
        """Put back what was taken, as far as it is still there."""
        for reason, points in self._flight.lost.items():
            self._tally.drop(reason, points)
        place = self._flight.place
        self._flight.clear()
        if self._store is not None:
            if place is not None:
                self._store.reader.place = place
            self._store.save()

    def tend(self, now_ns: int) -> None:
        """Flush, if it is time."""
        due = self._flushed_ns is None or now_ns - self._flushed_ns >= self._fsync_ns
        if self._store is not None and due:
            self._flushed_ns = now_ns
            self._store.flush()

    def state(self) -> QueueState:
        """Return how it is doing."""
        oldest_ns = self._oldest_ns()  # which may find something broken
        self._notices.sum_up(self._now().mono_ns)
        return QueueState(
            totals=self._tally.totals(self.queued),
            recovered=self._recovered,
            bytes=self._store.size if self._store is not None else 0,
            oldest_ns=oldest_ns,
            faults=self._notices.faults,
            notes=self._notices.take(),
            warnings=self._notices.take_warnings(),
            earlier=self._tally.earlier,
        )

    def _oldest_ns(self) -> int | None:
        if self._flight or self._store is None:
            return self._flight.oldest_ns
        return self._store.reader.oldest_ns(self._store.end)

    def close(self) -> None:
        """Flush and give the folder back. What was taken is put back."""
        self.release()
        self._notices.sum_up(None)
        self._left = self.queued
        if self._store is not None:
            self._store.flush()
            self._store.close()
            self._store = None
