"""A sink to test with, on a clock that the test sets and a real file."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

from pipeline.base.channels import Channel
from pipeline.ledger.file_open import open_readonly
from pipeline.model import NS, Instant, Snapshot
from pipeline.model.usage_window import UsageWindow
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.keeping import Shown, window_of
from tests.pipeline.ledger.test_file_open import filled
from tests.support.nodes import at, gpu
from tests.support.sinks import FakeSinkContext
from tests.support.usage import account, holding, used

T = TypeVar("T")
GPU = gpu(0)
SHOWN = Shown()


class Hand:
    """A clock that a test sets; who waits looks again and again whether it is time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> Instant:
        return at(self.seconds)

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self.seconds < until:
            await asyncio.sleep(0.005)


class Bench:
    """A sink that runs, and the accounts it is told."""

    def __init__(
        self, path: Path, seconds: float = 0, kept: dict[str, object] | None = None, **options: Any
    ) -> None:
        self.path = path
        self.clock = Hand()
        self.clock.seconds = seconds
        self.ctx = FakeSinkContext("usage", clock=self.clock)
        self.ctx.restart_state = {} if kept is None else kept
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

    def tell(self, seconds: float) -> None:
        """Tell of an account of so long, all of it one container's."""
        self.clock.seconds = seconds
        runs = holding("a", GPU, until=at(seconds))
        one = used("a", held=round(seconds * NS), busy=7, energy=9, holding=runs)
        self.inbox.offer(SHOWN(account(GPU, one, until=at(seconds))))

    def counted(self, family: str) -> dict[str, float]:
        return self.ctx.counted(f"podgpu_sink_{family}_total")

    async def until(self, condition: Any) -> None:
        """Let time pass until something is so."""
        async with asyncio.timeout(20):
            while not condition():
                self.clock.seconds += 0.02
                await asyncio.sleep(0.01)


async def off(call: Callable[..., T], *given: Any) -> T:
    """Call what blocks, in a thread."""
    return await asyncio.to_thread(call, *given)


async def whole(path: Path) -> UsageWindow:
    return await off(window_of, path)


async def seconds_of(path: Path) -> float:
    return sum(total.accounted_ns for total in (await whole(path)).totals) / NS


def closed(path: Path, seconds: int) -> None:
    """Make a ledger with an account of so long."""
    filled(path, seconds).close()


def asked(path: Path, query: str) -> list[Any]:
    with closing(open_readonly(path)) as connection:
        return connection.execute(query).fetchall()
