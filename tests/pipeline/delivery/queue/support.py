"""Numbered records, queues of all kinds, and checks that must always succeed."""

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.delivery.contract import QueueState, Record
from pipeline.delivery.queue.disk.shared_state import DiskShared
from pipeline.delivery.queue.error_reasons import reason_of
from pipeline.delivery.queue.fallback_queue import FallbackQueue
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.model import NS, Instant

KINDS = ("memory", "disk", "safe")
MAX = 1 << 20


def record(number: int, size: int = 40, points: int | None = None) -> Record:
    """Return a record that contains its number. By default, its points depend on the number."""
    data = b"%012d" % number
    return Record(data.ljust(size, b"."), points or number % 7 + 1, 10**18 + number)


def numbers(records: Iterable[Record]) -> list[int]:
    return [int(found.data[:12]) for found in records]


def points(records: Iterable[Record]) -> int:
    return sum(found.points for found in records)


@dataclass
class Clock:
    """Both clocks, which only `pass_` moves."""

    mono_ns: int = 5 * NS
    wall_ns: int = 1_700_000_000 * NS

    def now(self) -> Instant:
        return Instant(self.mono_ns, self.wall_ns)

    def pass_(self, seconds: float) -> int:
        self.mono_ns += round(seconds * NS)
        self.wall_ns += round(seconds * NS)
        return self.mono_ns


class DiskOnlyQueue(FallbackQueue):
    """A queue on disk without a fallback to memory: records that can't be written are dropped."""

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            if not self._drop_too_large(record):
                try:
                    self._put(record)
                except OSError as error:
                    self._counters.drop(reason_of(error), record.points)


@dataclass
class Bench:
    """Opens queues of one kind in one folder."""

    kind: str
    path: Path
    max_size: int = MAX
    fsync: float = 0
    memory: int = 1 << 20
    clock: Clock = field(default_factory=Clock)

    def open(self) -> MemoryQueue:
        if self.kind == "memory":
            return MemoryQueue(self.max_size)
        fsync_ns = round(self.fsync * NS)
        shared = DiskShared(self.path, self.max_size, "lines", fsync_ns, self.clock.now)
        if self.kind == "disk":
            return DiskOnlyQueue(shared)
        return FallbackQueue(shared, self.memory)


def checked(queue: MemoryQueue) -> QueueState:
    """Return the state of a queue, after a check that its counts add up."""
    state = queue.state()
    totals = state.totals
    done = totals.acked + sum(totals.rejected.values()) + sum(totals.dropped.values())
    assert totals.appended == done + totals.queued
    assert totals.queued >= 0
    assert all(count > 0 for count in totals.dropped.values())
    return state


def drain(queue: MemoryQueue, most: int = 1 << 16) -> list[Record]:
    """Take and settle all records, and return them."""
    found: list[Record] = []
    while taken := queue.take(most):
        queue.settle(len(taken), acked=points(taken))
        found += taken
    return found


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def on_disk(path: Path) -> int:
    with os.scandir(path) as files:
        return sum(file.stat().st_size for file in files if file.name.endswith(".seg"))


def fill(queue: MemoryQueue, count: int, size: int = 40, start: int = 0) -> list[Record]:
    records = [record(number, size) for number in range(start, start + count)]
    queue.append(records)
    return records


def settle(queue: MemoryQueue, records: Iterable[Record]) -> None:
    """Take records one by one, in the order of the queue, and settle each one."""
    for one in records:
        queue.take(1)
        queue.settle(1, acked=one.points)


def kill(queue: MemoryQueue) -> None:
    """Leave the queue as a killed process does: its files are closed without a flush."""
    assert isinstance(queue, FallbackQueue)
    store = queue._store
    if store is None:
        return
    queue._store = None
    store._writer.close()
    store.reader.close()
    store._cursor.close()
    store.folder.close()


class Failing:
    """A system call that fails while `on` is set, after `after` successful calls.

    Args:
        call: the real call.
        error: the error number with which it fails.
    """

    def __init__(self, call: Callable[..., object], error: int) -> None:
        self._call = call
        self.error = error
        self.on = False
        self.after = 0
        self.tries = 0

    def __call__(self, *args: object, **kwargs: object) -> object:
        if self.on:
            self.tries += 1
            if self.tries > self.after:
                raise OSError(self.error, os.strerror(self.error))
        return self._call(*args, **kwargs)


def subsequence(part: Sequence[int], whole: Sequence[int]) -> bool:
    rest = iter(whole)
    return all(number in rest for number in part)


def flattened(lists: Iterable[Sequence[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))
