"""The contract that every sink fulfils."""

import asyncio
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from pipeline.base.channels import Channel
from pipeline.component.contracts import Sink
from pipeline.component.registry import KINDS, build_sink
from pipeline.model import Snapshot
from tests.contracts.cases import options_of
from tests.support.nodes import Node, at, claim, every_field, gpu, mig, uuid_of
from tests.support.objects import FakeObjects
from tests.support.sinks import FakeSinkContext

NAMES = [kind for role, kind in KINDS if role == "sink"]


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sink(kind: str, tmp_path: Path) -> Sink:
    ctx = FakeSinkContext(kind)
    ctx.api = FakeObjects()
    return build_sink(kind, options_of("sink", kind, tmp_path), ctx)


@cache
def snapshots(count: int) -> tuple[Snapshot, ...]:
    """Return snapshots of a node on which readings, holders and GPUs change."""
    node = Node()
    gpus = [gpu(0), gpu(1), mig(gpu(1), 3)]
    node.has(*gpus)
    made: list[Snapshot] = []
    for number in range(count):
        node.seconds = number
        node.podlist(*(claim(f"pod-{number}", uuid_of(0)) for _ in range(number % 2)))
        made.append(node.snapshot())
        if number == count // 2:
            node.has(gpus[0])
        node.reads(*every_field(gpus[:1] if number >= count // 2 else gpus, at(number)))
        made.append(node.snapshot())
    return tuple(made)


async def test_a_sink_consumes_all_snapshots_and_returns_when_its_inbox_ends(sink: Sink) -> None:
    inbox: Channel[Snapshot] = Channel(100)
    for snapshot in snapshots(10):
        inbox.offer(snapshot)
    inbox.close()
    async with asyncio.timeout(5), sink:
        await sink.run(inbox)
    assert len(inbox) == 0


async def test_a_sink_accepts_an_inbox_that_ends_immediately(sink: Sink) -> None:
    inbox: Channel[Snapshot] = Channel(1)
    inbox.close()
    async with asyncio.timeout(5), sink:
        await sink.run(inbox)


async def test_a_sink_can_be_closed_and_opened_again(sink: Sink) -> None:
    before = asyncio.all_tasks()
    for _ in range(3):
        inbox: Channel[Snapshot] = Channel(100)
        for snapshot in snapshots(2):
            inbox.offer(snapshot)
        inbox.close()
        async with asyncio.timeout(5), sink:
            await sink.run(inbox)
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before


async def test_a_sink_stops_within_a_second_after_cancellation(sink: Sink) -> None:
    inbox: Channel[Snapshot] = Channel(1)

    async def work() -> None:
        async with sink:
            await sink.run(inbox)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1


async def test_a_sink_can_be_closed_without_having_run(sink: Sink) -> None:
    for _ in range(3):
        async with sink:
            pass


@pytest.mark.slow
async def test_the_number_of_threads_of_a_sink_does_not_grow(sink: Sink) -> None:
    counts = []
    for _ in range(4):
        async with sink:
            pass
        await asyncio.sleep(0.1)
        counts.append(threading.active_count())
    assert counts[-1] <= counts[0] + 1
