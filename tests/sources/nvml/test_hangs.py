"""Calls that hang: one hanging GPU does not affect the others, two end the source."""

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


@pytest.mark.slow
async def test_a_hanging_gpu_is_down_and_the_others_keep_their_interval(
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
        started = time.monotonic()
        last = await next_rounds(ctx, 5)
        assert time.monotonic() - started < 1.2, "the deadline passes once"
        assert ups(last) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert sampling_threads() == 2
        assert inventories(ctx) == [GPU[:3]]
    assert errors(ctx)[GPU[1], "hangs"] == 1


@pytest.mark.slow
async def test_cancelling_does_not_wait_for_a_hanging_call(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    task = asyncio.create_task(NvmlSource(options(deadline=0.3)).run(ctx))
    await until(lambda: rounds(ctx))
    started = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1
    assert "nvmlShutdown" not in fake_nvml.calls(), "not while a thread is in the driver"


@pytest.mark.slow
async def test_cancelling_within_the_deadline_does_not_wait(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, block=HANGS))
    task = asyncio.create_task(NvmlSource(options(deadline=20)).run(ctx))
    await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
    started = time.monotonic()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 1


@pytest.mark.slow
async def test_the_gpu_comes_back_when_the_call_returns(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    async with running(ctx, options(deadline=0.2)):
        await until(lambda: rounds(ctx))
        before = len(ctx.events)
        fake_nvml.set(h100s(2, values={"power_usage": 123_000}))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 1)
        await until(lambda: sampling_threads() == 1)
        watts = {
            r.value
            for samples in rounds(ctx)
            for r in samples.readings
            if r.device == GPU[0] and r.field == "power_watts"
        }
        assert watts == {123.0}
        assert len(ctx.events) > before


@pytest.mark.slow
async def test_two_hanging_gpus_end_the_source_and_other_readings_are_kept(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(deadline=0.2))
    blocked = h100s(4).with_gpu(1, block=HANGS).with_gpu(2, block=HANGS)
    fake_nvml.set(blocked)
    with pytest.raises(TransientError, match="driver calls hang") as caught:
        await source.run(ctx)
    assert GPU[1] in str(caught.value)
    assert GPU[2] in str(caught.value)
    assert any("power_watts" in fields(samples, GPU[0]) for samples in rounds(ctx))
    assert ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:4], 0), "including GPUs that were not reached"
    assert sampling_threads() == 2

    with pytest.raises(TransientError, match="driver calls hang in"):
        await source.run(ctx)
    assert sampling_threads() == 2, "at most two threads, however often it restarts"

    fake_nvml.set(h100s(4).with_gpu(1, block=HANGS))
    await until(lambda: sampling_threads() == 1)
    async with running(ctx, source):
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1, GPU[3]: 1}
        assert inventories(ctx)[-1] == GPU[:4]
        fake_nvml.set(h100s(4))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 1)


@pytest.mark.slow
async def test_a_gpu_that_hangs_on_opening_is_added_later(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetName": 60.0}))
    async with running(ctx, options(deadline=0.2)):
        assert ups(await next_rounds(ctx)) == {GPU[1]: 1}
        fake_nvml.set(h100s(2))
        await until(lambda: ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 1})
    assert inventories(ctx) == [[GPU[1]], GPU[:2]]


@pytest.mark.slow
async def test_a_hanging_nvml_init_is_an_error_until_it_returns(fake_nvml: FakeNvml) -> None:
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


@pytest.mark.slow
async def test_a_hanging_count_keeps_the_known_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(deadline=0.2)):
        await next_rounds(ctx)
        fake_nvml.set(replace(h100s(2), block={"nvmlDeviceGetCount_v2": 60.0}))
        assert ups(await next_rounds(ctx, 3)) == dict.fromkeys(GPU[:2], 1)


@pytest.mark.slow
async def test_skipped_rounds_are_counted_and_later_ones_keep_the_schedule(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, block={"nvmlDeviceGetTotalEnergyConsumption": 0.25}))
    async with running(ctx, options(interval=0.1, slow=60, deadline=5)):
        await until(lambda: len(rounds(ctx)) >= 4)
    # The first round ended after 0.25 s, so the rounds at 0.1 s and 0.2 s were skipped.
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
