"""Delivery under test: a queue that is no more than its contract, a receiver that does as told."""

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
    OpenQueue,
    Outcome,
    QueueState,
    Record,
    Totals,
)
from pipeline.delivery.options import QueueOptions, RetryOptions
from pipeline.delivery.queued_sink import QueuedSink
from pipeline.model import Instant, Layout, Snapshot
from tests.support.contexts import LoopClock
from tests.support.sinks import FakeSinkContext


class AtOnce(Executor):
    """Makes calls where they are asked for: on virtual time, a thread would take ages."""

    def __init__(self, name: str = "") -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to who waits
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


@dataclass
class Kept:
    """What outlives a queue."""

    records: list[Record] = field(default_factory=list)
    appended: int = 0
    acked: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


class ListQueue:
    """Implements `pipeline.delivery.contract.Queue`, and checks that it is used as it says.

    Attributes:
        fails: what each call does first, by its name.
        most: the largest it ever was, in bytes.
    """

    def __init__(self, kept: Kept, *, lasting: bool, max_size: int) -> None:
        self.kept = kept
        self.lasting = lasting
        self.max_size = max_size
        self.recovered = points_of(kept.records)
        self.earlier = Totals(
            kept.appended - self.recovered, kept.acked, dict(kept.rejected), dict(kept.dropped)
        )
        self.warnings: list[str] = []
        self.taken: int | None = None
        self.closed = False
        self.most = 0
        self.writable = True
        self.faults: dict[tuple[str, str], int] = {}
        self.notes: list[str] = []
        self.tended: list[int] = []
        self.fails: dict[str, Callable[[], None]] = {}

    def _called(self, name: str) -> None:
        assert not self.closed
        self.fails.get(name, lambda: None)()

    def append(self, records: Sequence[Record]) -> None:
        self._called("append")
        kept = self.kept
        assert records
        kept.records.extend(records)
        kept.appended += points_of(records)
        first = self.taken or 0
        while size_of(kept.records) > self.max_size and len(kept.records) > first:
            kept.dropped["full"] += kept.records.pop(first).points
        self.most = max(self.most, size_of(kept.records))

    def take(self, most_bytes: int) -> tuple[Record, ...]:
        self._called("take")
        assert self.taken is None, "what was taken is neither settled nor released"
        taken: list[Record] = []
        for record in self.kept.records:
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
        settled = self.kept.records[:count]
        assert acked + sum((rejected or {}).values()) == points_of(settled)
        del self.kept.records[:count]
        self.taken = self.taken - count or None
        self.kept.acked += acked
        self.kept.rejected.update(rejected or {})

    def release(self) -> None:
        self._called("release")
        self.taken = None

    def maintain(self, now_ns: int) -> None:
        self._called("tend")
        self.tended.append(now_ns)

    def state(self) -> QueueState:
        kept, notes, warnings = self.kept, tuple(self.notes), tuple(self.warnings)
        self.notes.clear()
        self.warnings.clear()
        return QueueState(
            Totals(kept.appended, kept.acked, dict(kept.rejected), dict(kept.dropped)),
            self.recovered,
            size_of(kept.records),
            kept.records[0].created_ns if kept.records else None,
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
        if not self.lasting:
            self.kept.dropped[SHUTDOWN] += points_of(self.kept.records)
            self.kept.records.clear()


def points_of(records: Iterable[Record]) -> int:
    return sum(record.points for record in records)


def size_of(records: Iterable[Record]) -> int:
    return sum(len(record.data) for record in records)


def number_of(record: Record) -> int:
    return int(record.data.split(b":")[0].lstrip(b"0") or b"0")


Answer = Callable[[Sequence[Record]], Outcome | Awaitable[Outcome]]


class Receiver:
    """A `PushSink`: a snapshot's `fresh` says how many points each of its records has.

    Attributes:
        answer: what becomes of a message.
        messages: all that were sent, with the second of each.
        accepted: the numbers of records that were taken, in their order.
        size: bytes of a record.
        signals: those of the records, one after the other and from the first again.
    """

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self.signals: tuple[int, ...] = (0,)
        self.answer: Answer = lambda _: Acked()
        self.messages: list[tuple[float, tuple[Record, ...]]] = []
        self.accepted: list[int] = []
        self.made = 0
        self.entered = self.left = 0
        self.entering: list[Exception] = []

    async def __aenter__(self) -> Self:
        if self.entering:
            raise self.entering.pop(0)
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
            data = b"%d:%d\n" % (self.made, points)
            signal = self.signals[self.made % len(self.signals)]
            yield Record(data.rjust(self.size, b"0"), points, snapshot.at.wall_ns, signal)
            self.made += 1

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
    """A `QueuedSink` with its inbox, and what its metrics say.

    Attributes:
        kept: what its queue leaves to the next one.
        queue: the one that was opened last.
        opens: whether the next one is writable when it is opened.
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
        kept: Kept | None = None,
        executor: Callable[[str], Executor] = AtOnce,
        open_queue: OpenQueue | None = None,
    ) -> None:
        self.clock = LoopClock()
        self.ctx = FakeSinkContext(name, clock=self.clock)
        self.push = Receiver(size)
        self.kept = kept or Kept()
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
        self.queue = ListQueue(self.kept, lasting=path is not None, max_size=0)
        self.opens = True
        self.inbox: Channel[Snapshot] = Channel(1000)
        self.sink = self._made()
        self.running: asyncio.Task[None] | None = None
        self.given = 0

    def _made(self) -> QueuedSink:
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
        lasting, max_size = options.path is not None, int(options.max_size)
        self.queue = ListQueue(self.kept, lasting=lasting, max_size=max_size)
        self.queue.writable = self.opens
        return self.queue

    @asynccontextmanager
    async def life(self, *, afresh: bool = False) -> AsyncIterator[Self]:
        """Run the sink until its inbox ends, or until the test ends it.

        Args:
            afresh: with another object of the same name, as after a reload.
        """
        if afresh:
            self.sink = self._made()
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
        """Hand a snapshot over whose records have so many points."""
        self.inbox.offer(Snapshot(self.clock.now(), Layout((), {}), (), points or (1,)))
        self.given += sum(points or (1,))

    async def passes(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def value(self, family: str, **labels: str) -> float:
        """The sum of the points of a family that have these labels."""
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
        """produced + recovered - emitted - rejected - dropped - queued."""
        came = self.value("produced_total") + self.value("recovered_total")
        went = ("emitted_total", "rejected_total", "dropped_total", "queued")
        return came - sum(map(self.value, went))


virtual = pytest.mark.looptime(start=1000)
