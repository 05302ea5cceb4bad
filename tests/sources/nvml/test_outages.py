"""While the source is down, gpu_up is 0 for all known GPUs instead of missing."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from pipeline.fields import FieldPlan
from pipeline.join import Join
from pipeline.model import (
    NS,
    ClockTicked,
    Envelope,
    Instant,
    SamplesTaken,
    SourceAdded,
    SourceLost,
)
from sources.nvml.source import UNTIL_CHANGED, NvmlSource
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.sources.nvml.harness import (
    GPU,
    good_for,
    next_rounds,
    options,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
)
from tests.support.contexts import FakeSourceContext

HANGS = {"nvmlDeviceGetPowerUsage": 60.0}
YEAR_NS = 365 * 24 * 3600 * NS


@pytest.fixture(autouse=True)
async def no_thread_left(fake_nvml: FakeNvml) -> object:
    yield
    fake_nvml.set(h100s(1))
    await until(lambda: sampling_threads() == 0)


def shown_later(ctx: FakeSourceContext) -> dict[str, int | float]:
    """Return gpu_up in a snapshot one year later, if the source emits nothing more."""
    join = Join()
    events = [SourceAdded(0), *ctx.events, SourceLost("down")]
    at = ctx.clock.now()
    for seq, event in enumerate(events, 1):
        join.apply(Envelope("gpus", "nvml", seq, at, event))
    later = Instant(at.mono_ns + YEAR_NS, at.wall_ns + YEAR_NS)
    join.apply(Envelope("gpus", "nvml", len(events) + 1, later, ClockTicked()))
    return {r.device: r.value for r in join.snapshot(later).readings if r.field == "gpu_up"}


WHILE_RUNNING: list[Callable[[], Scenario]] = [
    lambda: replace(h100s(4), errors={"nvmlDeviceGetPowerUsage": 9}),
    lambda: replace(h100s(4), errors={"nvmlDeviceGetCount_v2": 18}),
    lambda: h100s(4).with_gpu(2, errors={"nvmlDeviceGetPowerUsage": 1}),
    lambda: h100s(4).with_gpu(1, block=HANGS).with_gpu(2, block=HANGS),
]
FOUR = set(GPU[:4])
AT_THE_START: list[Callable[[], Scenario]] = [
    lambda: replace(h100s(4), init_error=9),
    lambda: replace(h100s(4), init_error=12),
    lambda: replace(h100s(4), block={"nvmlInitWithFlags": 60.0}),
    lambda: replace(h100s(4), block={"nvmlDeviceGetCount_v2": 60.0}),
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", WHILE_RUNNING)
async def test_all_gpus_are_down_when_the_source_fails(
    fake_nvml: FakeNvml, fault: Callable[[], Scenario]
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(deadline=0.5))
    fake_nvml.set(h100s(4))
    task = asyncio.create_task(source.run(ctx))
    # A long round is reported in several events.
    await until(
        lambda: {u for samples in rounds(ctx) for u, up in ups(samples).items() if up} >= FOUR
    )
    fake_nvml.set(fault())
    with pytest.raises(TransientError):
        await task
    assert shown_later(ctx) == dict.fromkeys(GPU[:4], 0)
    await recovers(fake_nvml, ctx, source)


@pytest.mark.slow
@pytest.mark.parametrize("fault", AT_THE_START)
async def test_all_gpus_are_down_when_a_restart_fails(
    fake_nvml: FakeNvml, fault: Callable[[], Scenario]
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(deadline=0.2))
    fake_nvml.set(h100s(4))
    async with running(ctx, source):
        await next_rounds(ctx)
    fake_nvml.set(fault())
    for _ in range(3):
        with pytest.raises(TransientError):
            await source.run(ctx)
        assert shown_later(ctx) == dict.fromkeys(GPU[:4], 0)

    reports = [e for e in rounds(ctx) if good_for(e, ["gpu_up"]) == {UNTIL_CHANGED}]
    assert len(reports) == 1, "reported once: each further event would show the source as up"
    await recovers(fake_nvml, ctx, source)


async def recovers(fake: FakeNvml, ctx: FakeSourceContext, source: NvmlSource) -> None:
    fake.set(h100s(4))
    await until(lambda: sampling_threads() == 0)
    async with running(ctx, source):
        await until(lambda: ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:4], 1))
        assert good_for(rounds(ctx)[-1], ["gpu_up"]) == {3 * NS // 10}
    assert shown_later(ctx) == {}, "readings expire as usual"


@pytest.mark.slow
async def test_gpu_up_is_0_in_a_second_outage_too(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options())
    for _ in range(2):
        fake_nvml.set(h100s(2))
        task = asyncio.create_task(source.run(ctx))
        await next_rounds(ctx)
        fake_nvml.set(replace(h100s(2), errors={"*": 9}))
        with pytest.raises(TransientError):
            await task
        assert shown_later(ctx) == dict.fromkeys(GPU[:2], 0)


@pytest.mark.parametrize("fault", AT_THE_START)
async def test_a_failed_first_start_emits_no_event(
    fake_nvml: FakeNvml, fault: Callable[[], Scenario]
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(fault())
    with pytest.raises(TransientError):
        await NvmlSource(options(deadline=0.2)).run(ctx)
    assert ctx.events == []


async def test_stopping_does_not_set_gpu_up_to_0(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx):
        await next_rounds(ctx)
    assert shown_later(ctx) == {}


async def test_gpu_up_is_not_reported_if_the_plan_lacks_it(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["power_watts"])
    source = NvmlSource(options())
    task = asyncio.create_task(source.run(ctx))
    await ctx.wait_for(SamplesTaken)
    fake_nvml.set(replace(h100s(1), errors={"*": 9}))
    with contextlib.suppress(TransientError):
        await task
    assert rounds(ctx) == []
