"""Hints force usage samples, and a failing device does not affect the samples of others."""

import asyncio
import itertools
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import NS
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Gpm, Load, Proc, Scenario, h100, h100s, mixed, slices
from tests.sources.nvml.harness import (
    GPU,
    errors,
    mig,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
)
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, usage_samples, uses
from tests.support.contexts import FakeSourceContext

pytestmark = pytest.mark.usefixtures("no_thread_left")

HANGS = {"nvmlDeviceGetProcessUtilization": 60.0}


async def test_a_hint_samples_the_named_gpus_at_start_and_end_of_a_pod(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, usage_options(every=60)):
        await until(lambda: usage_samples(ctx))
        for count in (2, 3):
            ctx.hint(GPU[0], GPU[2])
            await until(lambda count=count: len(usage_samples(ctx)) == count)
    for sample in usage_samples(ctx)[1:]:
        assert [use.device for use in sample.uses] == [GPU[0], GPU[2]]
    first, started, ended = uses(ctx, GPU[2])
    assert (started.since, ended.since) == (first.at, started.at)
    assert ended.at.mono_ns - started.at.mono_ns < 2 * NS


@pytest.mark.slow
async def test_forced_samples_take_no_busy_time_from_regular_ones(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(7)], loads=[Load(7, 50)]))
    async with running(ctx, usage_options(every=0.5)):
        await until(lambda: usage_samples(ctx))
        for _ in range(30):
            ctx.hint(GPU[0])
            await asyncio.sleep(0.05)
        # The last samples of the two GPUs are at most one interval apart.
        await next_usage_samples(ctx, 2)
    busy: list[int] = []
    for uuid in GPU[:2]:
        of_device = uses(ctx, uuid)
        for before, after in itertools.pairwise(of_device):
            assert after.since == before.at
        busy.append(sum(use.busy_ns or 0 for use in of_device))
    assert len(uses(ctx, GPU[0])) > 2 * len(uses(ctx, GPU[1]))
    assert abs(busy[0] - busy[1]) < 0.5 * 0.45 * NS


async def test_a_hint_for_an_instance_samples_its_gpu_and_all_its_instances(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, usage_options(every=60)):
        await until(lambda: usage_samples(ctx))
        ctx.hint(mig(1, 8))
        await until(lambda: len(usage_samples(ctx)) > 1)
    assert [use.device for use in usage_samples(ctx)[1].uses] == [
        mig(1, 7),
        mig(1, 8),
        mig(1, 9),
        GPU[1],
    ]


@pytest.mark.slow
async def test_busy_time_between_samples_too_close_for_gpm_is_unknown(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[h100(0, mig=slices(0, "3g.40gb", gpm={1: Gpm(100)}))]))
    async with running(ctx, usage_options(every=0.3)):
        await until(lambda: usage_samples(ctx))
        for _ in range(15):
            ctx.hint(GPU[0])
            await asyncio.sleep(0.06)
    of_instance = uses(ctx, mig(0, 7))
    for use in of_instance:
        if use.busy_ns is not None:
            assert use.since is not None
            assert use.busy_ns == use.at.mono_ns - use.since.mono_ns, (
                "the device is busy all the time"
            )
    assert any(use.busy_ns is None for use in of_instance[1:])
    assert any(use.busy_ns for use in of_instance)
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_forced_sample_is_taken_between_two_gpus_of_a_round(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(4, block={"nvmlDeviceGetPowerUsage": 0.3}))
    async with running(ctx, usage_options(every=60)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
        ctx.hint(GPU[3])
        await until(lambda: uses(ctx, GPU[3]))
        in_rounds = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert GPU[3] not in in_rounds, "the round of 1.2 s is still running"


@pytest.mark.slow
async def test_a_lost_gpu_has_no_samples_and_its_intervals_restart(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, usage_options(interval=0.1, slow=0.2)):
        await next_usage_samples(ctx, 3)
        fake_nvml.set(h100s(2).with_gpu(1, lost=True))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        await next_usage_samples(ctx, 1)
        before = len(uses(ctx, GPU[1]))
        await next_usage_samples(ctx, 3)
        assert len(uses(ctx, GPU[1])) == before
        assert all(use.since for use in uses(ctx, GPU[0])[1:])
        fake_nvml.set(h100s(2))
        await until(lambda: len(uses(ctx, GPU[1])) > before + 1)
    assert [use.since is None for use in uses(ctx, GPU[1])[before : before + 2]] == [True, False]


@pytest.mark.slow
async def test_a_gpu_that_hangs_in_a_sample_has_none_until_it_returns(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, usage_options(interval=0.1, deadline=0.2)):
        await next_usage_samples(ctx, 2)
        fake_nvml.set(h100s(3).with_gpu(1, block=HANGS))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        before = len(uses(ctx, GPU[1]))
        await next_usage_samples(ctx, 3)
        assert ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert sampling_threads() == 2
        assert len(uses(ctx, GPU[1])) == before
        assert all(use.since for uuid in (GPU[0], GPU[2]) for use in uses(ctx, uuid)[1:])
        fake_nvml.set(h100s(3))
        await until(lambda: len(uses(ctx, GPU[1])) > before)
    assert uses(ctx, GPU[1])[before].since is None


@pytest.mark.slow
async def test_a_gpu_that_hangs_in_a_round_has_no_samples(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, usage_options(interval=0.1, deadline=0.2)):
        await next_usage_samples(ctx, 2)
        fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetPowerUsage": 60.0}))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 0)
        await next_usage_samples(ctx, 1)
        before = len(uses(ctx, GPU[0]))
        await next_usage_samples(ctx, 2)
        assert len(uses(ctx, GPU[0])) == before
        fake_nvml.set(h100s(2))
        await until(lambda: len(uses(ctx, GPU[0])) > before)
    assert uses(ctx, GPU[0])[before].since is None


@pytest.mark.slow
async def test_the_intervals_of_all_devices_restart_after_an_outage(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(usage_options())
    fake_nvml.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    await next_usage_samples(ctx, 3)
    fake_nvml.set(replace(h100s(2), errors={"nvmlDeviceGetProcessUtilization": 9}))
    with pytest.raises(TransientError, match="driver_not_loaded"):
        await task
    before = len(usage_samples(ctx))
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        await until(lambda: len(usage_samples(ctx)) > before + 1)
    after = usage_samples(ctx)[before:]
    assert [[use.since is None for use in sample.uses] for sample in after[:2]] == [
        [True, True],
        [False, False],
    ]


async def test_devices_sampled_before_the_driver_failed_are_reported(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(usage_options())
    fake_nvml.set(h100s(3).with_gpu(2, errors={"nvmlDeviceGetProcessUtilization": 9}))
    with pytest.raises(TransientError, match="driver_not_loaded"):
        await source.run(ctx)
    assert [use.device for use in usage_samples(ctx)[0].uses] == GPU[:2]
