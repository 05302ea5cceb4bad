"""The contract that every source fulfils."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pipeline.component.contracts import Source
from pipeline.component.registry import KINDS, build_source
from pipeline.join import Join
from pipeline.model import ClaimsReplaced, Envelope, SamplesTaken
from tests.contracts.cases import options_of
from tests.fakes.nvml import FakeNvml
from tests.support.contexts import FakeSourceContext

NAMES = [kind for role, kind in KINDS if role == "source"]


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(kind: str, tmp_path: Path, fake_nvml: FakeNvml, fake_daemons: None) -> Source:
    return build_source(kind, options_of("source", kind, tmp_path))


async def wait_for_events(ctx: FakeSourceContext, task: asyncio.Task[None], count: int = 1) -> None:
    """Wait until the source has emitted or relayed at least `count` events.

    An error that ends the source's task is raised here.
    """
    async with asyncio.timeout(10):
        while len(ctx.events) + len(ctx.relayed) < count:
            if task.done():
                await task
                pytest.fail(f"run() returned after {len(ctx.events) + len(ctx.relayed)} events")
            await asyncio.sleep(0.01)


async def run_until(source: Source, kind: str, count: int = 1) -> FakeSourceContext:
    """Run the source until it has emitted `count` events, and stop it."""
    ctx = FakeSourceContext(kind)
    task = asyncio.create_task(source.run(ctx))
    await wait_for_events(ctx, task, count)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return ctx


@pytest.mark.slow
async def test_a_source_emits_events_and_stops_within_a_second(source: Source, kind: str) -> None:
    ctx = FakeSourceContext(kind)
    task = asyncio.create_task(source.run(ctx))
    await wait_for_events(ctx, task)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1


@pytest.mark.slow
async def test_a_source_can_run_again_and_leaves_no_tasks_behind(source: Source, kind: str) -> None:
    before = asyncio.all_tasks()
    for _ in range(3):
        await run_until(source, kind)
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == before


async def test_a_source_can_be_cancelled_before_it_starts(source: Source, kind: str) -> None:
    task = asyncio.create_task(source.run(FakeSourceContext(kind)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.slow
async def test_the_number_of_threads_of_a_source_does_not_grow(source: Source, kind: str) -> None:
    counts: list[int] = []
    for _ in range(4):
        await run_until(source, kind)
        # On a busy machine the last threads may end late.
        for _ in range(30):
            await asyncio.sleep(0.1)
            if not counts or threading.active_count() <= counts[0]:
                break
        counts.append(threading.active_count())
    assert counts[-1] <= counts[0] + 1


@pytest.mark.slow
async def test_readings_and_claims_have_a_time_and_a_limited_validity(
    source: Source, kind: str
) -> None:
    ctx = await run_until(source, kind, 3)
    now = ctx.clock.now()
    for event in [*ctx.events, *(envelope.event for envelope in ctx.relayed)]:
        match event:
            case SamplesTaken(readings, processes):
                times = [(found.at, found.good_for_ns) for found in readings]
                times += [(listed.at, listed.good_for_ns) for listed in processes]
                for taken, good_for_ns in times:
                    assert 0 <= taken.mono_ns <= now.mono_ns
                    assert good_for_ns > 0
            case ClaimsReplaced(_, good_for_ns):
                assert good_for_ns > 0
            case _:
                pass


@pytest.mark.slow
async def test_the_join_accepts_all_events_of_a_source(source: Source, kind: str) -> None:
    ctx = await run_until(source, kind, 3)
    join = Join()
    for seq, event in enumerate(ctx.events, 1):
        join.apply(Envelope(kind, kind, seq, ctx.clock.now(), event))
    for envelope in ctx.relayed:
        join.apply(envelope)
    assert join.snapshot(ctx.clock.now()).sources
