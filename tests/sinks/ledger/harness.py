"""A running ledger sink, with a real file and a clock that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

from pipeline.base.channels import Channel
from pipeline.ledger.file_open import open_readonly
from pipeline.model import NS, Instant, Snapshot
from pipeline.model.ledger_usage import UsageWindow
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.open_ledger import Snapshots, window_of
from tests.pipeline.ledger.test_file_open import filled
from tests.support.nodes import at, gpu
from tests.support.sinks import FakeSinkContext
from tests.support.usage import account, holding, used

T = TypeVar("T")
GPU = gpu(0)
SNAPSHOT = Snapshots()


class ManualClock:
    """A clock that a test sets; `sleep` polls it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> Instant:
        return at(self.seconds)

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self.seconds < until:
            await asyncio.sleep(0.005)


class SinkHarness:
    """A ledger sink that runs, and the snapshots that it gets."""

    def __init__(
        self,
        path: Path,
        seconds: float = 0,
        restart_state: dict[str, object] | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self.clock = ManualClock()
        self.clock.seconds = seconds
        self.ctx = FakeSinkContext("usage", clock=self.clock)
        self.ctx.restart_state = {} if restart_state is None else restart_state
        self.sink = LedgerSink(Options(path=path, **options), self.ctx)
        self.inbox: Channel[Snapshot] = Channel(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.sink:
            task = asyncio.create_task(self.sink.run(self.inbox))
            yield
            self.inbox.close()
            async with asyncio.timeout(20):
                await task

    def send_account(self, seconds: float) -> None:
        """Send an account of some seconds, all of them held by one container."""
        self.clock.seconds = seconds
        running_holding = holding("a", GPU, until=at(seconds))
        one = used("a", held=round(seconds * NS), busy=7, energy=9, holding=running_holding)
        self.inbox.offer(SNAPSHOT(account(GPU, one, until=at(seconds))))

    def counted(self, family: str) -> dict[str, float]:
        return self.ctx.counted(f"podgpu_sink_{family}_total")

    async def until(self, condition: Any) -> None:
        """Advance the clock until a condition is true."""
        async with asyncio.timeout(20):
            while not condition():
                self.clock.seconds += 0.02
                await asyncio.sleep(0.01)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call in a thread."""
    return await asyncio.to_thread(call, *arguments)


async def read_whole_window(path: Path) -> UsageWindow:
    return await in_thread(window_of, path)


async def seconds_of(path: Path) -> float:
    return sum(total.accounted_ns for total in (await read_whole_window(path)).totals) / NS


def write_ledger(path: Path, seconds: int) -> None:
    """Create a ledger with an account of some seconds, and close it."""
    filled(path, seconds).close()


def query_file(path: Path, query: str) -> list[Any]:
    with closing(open_readonly(path)) as connection:
        return connection.execute(query).fetchall()
