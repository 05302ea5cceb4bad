"""Test doubles for delivery: a queue in a list, a receiver with given outcomes, a test bench."""

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from config.value_types import ByteSize, Duration
from pipeline.base.channels import Channel
from pipeline.delivery.contract import (
    SHUTDOWN,
    Acked,
    Outcome,
    QueueState,
    Record,
    Totals,
)
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.queue.memory_queue import MemoryQueue
from pipeline.delivery.queue_thread import OpenQueue
from pipeline.delivery.queued_sink import QueuedSink
from pipeline.model import Instant, Layout, Snapshot
from tests.support.contexts import LoopClock
from tests.support.sinks import FakeSinkContext


class InlineExecutor(Executor):
    """An executor without threads, for virtual time: a call runs inside `submit`."""

    def __init__(self, name: str = "") -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future gets it
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


@dataclass
class StoredRecords:
    """The records and counts that remain when a queue is closed."""

    records: list[Record] = field(default_factory=list)
    appended: int = 0
    acked: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class ListQueue(MemoryQueue):
    """Replaces all of `MemoryQueue`, and checks that it is used as documented.

    Attributes:
        fails: function that a method calls first, by name of the method.
        most_bytes: the largest size that it had.
    """

    def __init__(self, stored: StoredRecords, *, durable: bool, max_size: int) -> None:
        self.stored = stored
        self.durable = durable
        self.max_size = max_size
        self.recovered = points_of(stored.records)
        self.earlier = Totals(
            stored.appended - self.recovered,
            stored.acked,
            dict(stored.rejected),
            dict(stored.dropped),
        )
        self.warnings: list[str] = []
        self.taken: int | None = None
        self.closed = False
        self.most_bytes = 0
        self.writable = True
        self.faults: dict[tuple[str, str], int] = {}
        self.notes: list[str] = []
        self.maintained: list[int] = []
        self.fails: dict[str, Callable[[], None]] = {}

    def _called(self, name: str) -> None:
        assert not self.closed
        self.fails.get(name, lambda: None)()

    def append(self, records: Sequence[Record]) -> None:
        self._called("append")
        stored = self.stored
        assert records
        stored.records.extend(records)
        stored.appended += points_of(records)
        first = self.taken or 0
        while size_of(stored.records) > self.max_size and len(stored.records) > first:
            stored.dropped["full"] += stored.records.pop(first).points
        self.most_bytes = max(self.most_bytes, size_of(stored.records))

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        self._called("take")
        assert self.taken is None, "the records in flight are neither settled nor released"
        taken: list[Record] = []
        for record in self.stored.records:
            if taken and size_of([*taken, record]) > most_bytes:
                break
            if taken and record.signal != taken[0].signal:
                break
            taken.append(record)
        self.taken = len(taken) or None
        return tuple(taken)

    def settle(
        self, count: int, *, acked: int = 0, rejected: Mapping[str, int] | None = None
    ) -> None:
        self._called("settle")
        assert self.taken is not None
        assert 0 < count <= self.taken
        settled = self.stored.records[:count]
        assert acked + sum((rejected or {}).values()) == points_of(settled)
        del self.stored.records[:count]
        self.taken = self.taken - count or None
        self.stored.acked += acked
        self.stored.rejected.update(rejected or {})

    def release(self) -> None:
        self._called("release")
        self.taken = None

    def maintain(self, now_ns: int) -> None:
        self._called("maintain")
        self.maintained.append(now_ns)

    def state(self) -> QueueState:
        stored, notes, warnings = self.stored, tuple(self.notes), tuple(self.warnings)
        self.notes.clear()
        self.warnings.clear()
        return QueueState(
            Totals(stored.appended, stored.acked, dict(stored.rejected), dict(stored.dropped)),
            self.recovered,
            size_of(stored.records),
            stored.records[0].created_ns if stored.records else None,
            self.writable,
            dict(self.faults),
            notes,
            warnings,
            self.earlier,
        )

    def close(self) -> None:
        self._called("close")
        self.closed = True
        self.taken = None
        if not self.durable:
            self.stored.dropped[SHUTDOWN] += points_of(self.stored.records)
            self.stored.records.clear()


def points_of(records: Iterable[Record]) -> int:
    return sum(record.points for record in records)


def size_of(records: Iterable[Record]) -> int:
    return sum(len(record.data) for record in records)


def number_of(record: Record) -> int:
    return int(record.data.split(b":")[0].lstrip(b"0") or b"0")


Answer = Callable[[Sequence[Record]], Outcome | Awaitable[Outcome]]


class Receiver:
    """A `PushSink`. A snapshot's `fresh` contains the number of points of each of its records.

    Attributes:
        answer: returns the outcome of a message.
        messages: all messages that were sent, with the time of each in seconds.
        accepted: the numbers of the records that were accepted, in order.
        size: size of a record in bytes.
        signals: the signals of the records, repeated in this order.
    """

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self.signals: tuple[int, ...] = (0,)
        self.answer: Answer = lambda _: Acked()
        self.messages: list[tuple[float, tuple[Record, ...]]] = []
        self.accepted: list[int] = []
        self.encoded = 0
        self.entered = self.left = 0
        self.enter_errors: list[Exception] = []

    async def __aenter__(self) -> Self:
        if self.enter_errors:
            raise self.enter_errors.pop(0)
        self.entered += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.left += 1

    def encode(self, snapshot: Snapshot) -> Iterator[Record]:
        for points in snapshot.fresh:
            data = b"%d:%d\n" % (self.encoded, points)
            signal = self.signals[self.encoded % len(self.signals)]
            yield Record(data.rjust(self.size, b"0"), points, snapshot.at.wall_ns, signal)
            self.encoded += 1

    async def send(self, records: Sequence[Record]) -> Outcome:
        loop = asyncio.get_running_loop()
        assert len({record.signal for record in records}) == 1
        self.messages.append((loop.time(), tuple(records)))
        outcome = self.answer(records)
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        if isinstance(outcome, Acked):
            self.accepted += map(number_of, records)
        return outcome

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.messages]


class Bench:
    """A `QueuedSink` with its inbox, its test doubles and its metrics.

    Attributes:
        stored: what remains of its queue for the next one.
        queue: the queue that was opened last.
        opens_writable: whether the next queue is writable when it is opened.
    """

    def __init__(
        self,
        *,
        path: Path | None = Path("/queue"),
        size: int = 100,
        most_bytes: int = 1000,
        max_size: str = "1MiB",
        max_rate: str = "4MiB",
        initial: str = "1s",
        longest: str = "30s",
        fsync: str = "1s",
        flush: float = 2.0,
        name: str = "under-test",
        stored: StoredRecords | None = None,
        executor: Callable[[str], Executor] = InlineExecutor,
        open_queue: OpenQueue | None = None,
    ) -> None:
        self.clock = LoopClock()
        self.ctx = FakeSinkContext(name, clock=self.clock)
        self.push = Receiver(size)
        self.stored = stored or StoredRecords()
        self.options = QueueOptions(
            path=path,
            max_size=ByteSize.parse(max_size),
            max_rate=ByteSize.parse(max_rate),
            fsync=Duration.parse(fsync),
        )
        self.retry = RetryOptions(initial=Duration.parse(initial), max=Duration.parse(longest))
        self.most_bytes = most_bytes
        self.flush = flush
        self.executor = executor
        self.open_queue = open_queue or self._open
        self.queue = ListQueue(self.stored, durable=path is not None, max_size=0)
        self.opens_writable = True
        self.inbox: Channel[Snapshot] = Channel(1000)
        self.sink = self._new_sink()
        self.running: asyncio.Task[None] | None = None
        self.given = 0

    def _new_sink(self) -> QueuedSink:
        return QueuedSink(
            self.push,
            self.options,
            self.retry,
            self.ctx,
            kind="lines",
            most_bytes=self.most_bytes,
            flush=self.flush,
            open_queue=self.open_queue,
            executor=self.executor,
        )

    def _open(self, options: QueueOptions, kind: str, now: Callable[[], Instant]) -> ListQueue:
        durable, max_size = options.path is not None, int(options.max_size)
        self.queue = ListQueue(self.stored, durable=durable, max_size=max_size)
        self.queue.writable = self.opens_writable
        return self.queue

    @asynccontextmanager
    async def life(self, *, new_object: bool = False) -> AsyncIterator[Self]:
        """Run the sink until the end of the block, and then until it has processed its inbox.

        Args:
            new_object: with a new sink object of the same name, as after a reload.
        """
        if new_object:
            self.sink = self._new_sink()
        self.inbox = Channel(1000)
        async with self.sink:
            self.running = asyncio.create_task(self.sink.run(self.inbox))
            try:
                yield self
                self.inbox.close()
                async with asyncio.timeout(60):
                    await self.running
            finally:
                self.running.cancel()
                await asyncio.gather(self.running, return_exceptions=True)

    def give(self, *points: int) -> None:
        """Put a snapshot into the inbox, whose records have these numbers of points."""
        self.inbox.offer(Snapshot(self.clock.now(), Layout((), {}), (), points or (1,)))
        self.given += sum(points or (1,))

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def value(self, family: str, **labels: str) -> float:
        """Return the sum of the values of a family that have these labels."""
        return sum(
            point.value
            for known, points in self.ctx.own.collect({})
            if known.name == f"podgpu_sink_{family}"
            for point in points
            if labels.items() <= dict(point.labels).items()
        )

    def by_reason(self, family: str) -> dict[str, float]:
        return {
            dict(point.labels)["reason"]: point.value
            for known, points in self.ctx.own.collect({})
            if known.name == f"podgpu_sink_{family}"
            for point in points
            if point.value
        }

    @property
    def imbalance(self) -> float:
        """Return produced + recovered - emitted - rejected - dropped - queued."""
        return sum(
            _SIGNS.get(known.name.removeprefix("podgpu_sink_"), 0) * point.value
            for known, points in self.ctx.own.collect({})
            for point in points
        )


_SIGNS = {
    "produced_total": 1,
    "recovered_total": 1,
    "emitted_total": -1,
    "rejected_total": -1,
    "dropped_total": -1,
    "queued": -1,
}

# Nothing outside of the loop wakes it, so before the time moves it need not be polled repeatedly.
virtual = pytest.mark.looptime(start=1000, noop_cycles=0)
