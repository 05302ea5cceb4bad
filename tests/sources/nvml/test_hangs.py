"""A driver that hangs in one GPU costs the others nothing; one that hangs in two is named."""

import asyncio
import contextlib
import itertools
import time
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, h100s
from tests.sources.nvml.harness import (
    GPU,
    HANGS,
    errors,
    fields,
    inventories,
    next_rounds,
    options,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
)
from tests.support.contexts import FakeSourceContext

pytestmark = pytest.mark.usefixtures("no_thread_left")


async def test_a_gpu_that_hangs_is_left_out_and_the_others_keep_their_period(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3).with_gpu(1, block=HANGS))
    async with running(ctx, options(interval=0.1, slow=0.1, deadline=0.2)):
        await until(lambda: rounds(ctx))
        first = rounds(ctx)[0]
        assert ups(first) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert "power_watts" in fields(first, GPU[0]), "read before the hang"
        assert "power_watts" in fields(first, GPU[2]), "read after it, by the new thread"
        assert fields(first, GPU[1]) == {"gpu_up"}
        begun = time.monotonic()
        last = await next_rounds(ctx, 5)
        assert time.monotonic() - begun < 1.2, "the deadline is waited for once"
        assert ups(last) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert sampling_threads() == 2
        assert inventories(ctx) == [GPU[:3]]
    assert errors(ctx)[GPU[1], "hangs"] == 1


async def test_cancelling_never_waits_for_a_hung_call(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    task = asyncio.create_task(NvmlSource(options(deadline=0.3)).run(ctx))
    await until(lambda: rounds(ctx))
    begun = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 1
    assert "nvmlShutdown" not in fake_nvml.calls(), "not below a thread that is in there"


async def test_cancelling_within_the_deadline(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, block=HANGS))
    task = asyncio.create_task(NvmlSource(options(deadline=20)).run(ctx))
    await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
    begun = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 1


async def test_the_gpu_comes_back_when_the_call_returns(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    async with running(ctx, options(deadline=0.2)):
        await until(lambda: rounds(ctx))
        hung_at = len(ctx.events)
        fake_nvml.set(h100s(2, values={"power_usage": 123_000}))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 1)
        await until(lambda: sampling_threads() == 1)
        seen = {
            r.value
            for samples in rounds(ctx)
            for r in samples.readings
            if r.device == GPU[0] and r.field == "power_watts"
        }
        assert seen == {123.0}
        assert len(ctx.events) > hung_at


async def test_two_hung_gpus_are_named_and_what_was_read_is_reported(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(deadline=0.2))
    blocked = h100s(4).with_gpu(1, block=HANGS).with_gpu(2, block=HANGS)
    fake_nvml.set(blocked)
    with pytest.raises(TransientError, match="driver calls hang") as caught:
        await source.run(ctx)
    assert GPU[1] in str(caught.value)
    assert GPU[2] in str(caught.value)
    assert any("power_watts" in fields(samples, GPU[0]) for samples in rounds(ctx))
    assert ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:4], 0), "also those nobody asked"
    assert sampling_threads() == 2

    with pytest.raises(TransientError, match="driver calls hang in"):
        await source.run(ctx)
    assert sampling_threads() == 2, "two at most, however often it is tried"

    fake_nvml.set(h100s(4).with_gpu(1, block=HANGS))
    await until(lambda: sampling_threads() == 1)
    async with running(ctx, source):
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1, GPU[3]: 1}
        assert inventories(ctx)[-1] == GPU[:4]
        fake_nvml.set(h100s(4))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 1)


async def test_a_gpu_that_hangs_while_it_is_opened(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetName": 60.0}))
    async with running(ctx, options(deadline=0.2)):
        assert ups(await next_rounds(ctx)) == {GPU[1]: 1}
        fake_nvml.set(h100s(2))
        await until(lambda: ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 1})
    assert inventories(ctx) == [[GPU[1]], GPU[:2]]


async def test_an_init_that_hangs(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(deadline=0.2))
    fake_nvml.set(replace(h100s(1), block={"nvmlInitWithFlags": 60.0}))
    with pytest.raises(TransientError, match="nvmlInit has not returned"):
        await source.run(ctx)
    with pytest.raises(TransientError, match="nvmlInit still hangs"):
        await source.run(ctx)
    assert sampling_threads() == 1
    fake_nvml.set(h100s(1))
    await until(lambda: sampling_threads() == 0)
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == {GPU[0]: 1}


async def test_a_count_that_hangs_leaves_the_known_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(deadline=0.2)):
        await next_rounds(ctx)
        fake_nvml.set(replace(h100s(2), block={"nvmlDeviceGetCount_v2": 60.0}))
        assert ups(await next_rounds(ctx, 3)) == dict.fromkeys(GPU[:2], 1)


async def test_late_rounds_are_counted_and_the_grid_is_kept(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, block={"nvmlDeviceGetTotalEnergyConsumption": 0.25}))
    async with running(ctx, options(interval=0.1, slow=60, deadline=5)):
        await until(lambda: len(rounds(ctx)) >= 4)
    # The first ended 0.25 s into the grid: the ticks at 0.1 and 0.2 were left out.
    skipped = [
        point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_samples_skipped_total"
        for point in points
    ]
    assert sum(skipped) >= 2
    at = [samples.readings[0].at.mono_ns / 1e9 for samples in rounds(ctx)][1:]
    steps = [(later - earlier) / 0.1 for earlier, later in itertools.pairwise(at)]
    assert steps == pytest.approx([round(step) for step in steps], abs=0.4)
    assert min(steps) > 0.5
