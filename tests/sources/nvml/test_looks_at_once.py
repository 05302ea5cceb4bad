"""A device that changes hands is looked at at once; one in trouble costs the others nothing."""

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
from tests.sources.nvml.looks import looking, looks, next_looks, uses
from tests.support.contexts import FakeSourceContext

pytestmark = pytest.mark.usefixtures("no_thread_left")

HANGS = {"nvmlDeviceGetProcessUtilization": 60.0}


async def test_the_named_gpus_alone_and_both_ends_of_a_short_pod(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, looking(every=60)):
        await until(lambda: looks(ctx))
        for count in (2, 3):
            ctx.hint(GPU[0], GPU[2])
            await until(lambda count=count: len(looks(ctx)) == count)
    for look in looks(ctx)[1:]:
        assert [use.device for use in look.uses] == [GPU[0], GPU[2]]
    first, begun, ended = uses(ctx, GPU[2])
    assert (begun.since, ended.since) == (first.at, begun.at)
    assert ended.at.mono_ns - begun.at.mono_ns < 2 * NS


async def test_looks_at_once_take_nothing_from_those_on_the_grid(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2, processes=[Proc(7)], loads=[Load(7, 50)]))
    async with running(ctx, looking(every=0.5)):
        await until(lambda: looks(ctx))
        for _ in range(30):
            ctx.hint(GPU[0])
            await asyncio.sleep(0.05)
        # The last sample of either is at most a period away from that of the other.
        await next_looks(ctx, 2)
    busy: list[int] = []
    for uuid in GPU[:2]:
        given_out = uses(ctx, uuid)
        for before, after in itertools.pairwise(given_out):
            assert after.since == before.at
        busy.append(sum(use.busy_ns or 0 for use in given_out))
    assert len(uses(ctx, GPU[0])) > 2 * len(uses(ctx, GPU[1]))
    assert abs(busy[0] - busy[1]) < 0.5 * 0.45 * NS


async def test_an_instance_means_its_gpu_and_all_on_it(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, looking(every=60)):
        await until(lambda: looks(ctx))
        ctx.hint(mig(1, 8))
        await until(lambda: len(looks(ctx)) > 1)
    assert [use.device for use in looks(ctx)[1].uses] == [mig(1, 7), mig(1, 8), mig(1, 9), GPU[1]]


async def test_what_is_too_close_for_gpm_is_unknown_and_never_counted_twice(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[h100(0, mig=slices(0, "3g.40gb", gpm={1: Gpm(100)}))]))
    async with running(ctx, looking(every=0.3)):
        await until(lambda: looks(ctx))
        for _ in range(15):
            ctx.hint(GPU[0])
            await asyncio.sleep(0.06)
    given_out = uses(ctx, mig(0, 7))
    for use in given_out:
        if use.busy_ns is not None:
            assert use.since is not None
            assert use.busy_ns == use.at.mono_ns - use.since.mono_ns, "of a device that is all busy"
    assert any(use.busy_ns is None for use in given_out[1:])
    assert any(use.busy_ns for use in given_out)
    assert errors(ctx) == {}


async def test_between_two_gpus_of_a_round_not_after_it(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(4, block={"nvmlDeviceGetPowerUsage": 0.3}))
    async with running(ctx, looking(every=60)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
        ctx.hint(GPU[3])
        await until(lambda: uses(ctx, GPU[3]))
        given_out = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert GPU[3] not in given_out, "the round of 1.2 s is still going on"


async def test_a_gpu_that_is_lost_is_left_out_and_restarts(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, looking(interval=0.1, slow=0.2)):
        await next_looks(ctx, 3)
        fake_nvml.set(h100s(2).with_gpu(1, lost=True))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        await next_looks(ctx, 1)
        before = len(uses(ctx, GPU[1]))
        await next_looks(ctx, 3)
        assert len(uses(ctx, GPU[1])) == before
        assert all(use.since for use in uses(ctx, GPU[0])[1:])
        fake_nvml.set(h100s(2))
        await until(lambda: len(uses(ctx, GPU[1])) > before + 1)
    assert [use.since is None for use in uses(ctx, GPU[1])[before : before + 2]] == [True, False]


async def test_a_gpu_that_hangs_in_a_look_is_left_out_and_restarts(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, looking(interval=0.1, deadline=0.2)):
        await next_looks(ctx, 2)
        fake_nvml.set(h100s(3).with_gpu(1, block=HANGS))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[1]] == 0)
        before = len(uses(ctx, GPU[1]))
        await next_looks(ctx, 3)
        assert ups(rounds(ctx)[-1]) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert sampling_threads() == 2
        assert len(uses(ctx, GPU[1])) == before
        assert all(use.since for uuid in (GPU[0], GPU[2]) for use in uses(ctx, uuid)[1:])
        fake_nvml.set(h100s(3))
        await until(lambda: len(uses(ctx, GPU[1])) > before)
    assert uses(ctx, GPU[1])[before].since is None


async def test_one_that_hangs_in_a_round_is_left_out_of_looks_too(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, looking(interval=0.1, deadline=0.2)):
        await next_looks(ctx, 2)
        fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetPowerUsage": 60.0}))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 0)
        await next_looks(ctx, 1)
        before = len(uses(ctx, GPU[0]))
        await next_looks(ctx, 2)
        assert len(uses(ctx, GPU[0])) == before
        fake_nvml.set(h100s(2))
        await until(lambda: len(uses(ctx, GPU[0])) > before)
    assert uses(ctx, GPU[0])[before].since is None


async def test_after_an_outage_all_restart(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(looking())
    fake_nvml.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    await next_looks(ctx, 3)
    fake_nvml.set(replace(h100s(2), errors={"nvmlDeviceGetProcessUtilization": 9}))
    with pytest.raises(TransientError, match="driver_not_loaded"):
        await task
    before = len(looks(ctx))
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        await until(lambda: len(looks(ctx)) > before + 1)
    after = looks(ctx)[before:]
    assert [[use.since is None for use in look.uses] for look in after[:2]] == [
        [True, True],
        [False, False],
    ]


async def test_what_was_seen_before_the_driver_went_is_reported(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(looking())
    fake_nvml.set(h100s(3).with_gpu(2, errors={"nvmlDeviceGetProcessUtilization": 9}))
    with pytest.raises(TransientError, match="driver_not_loaded"):
        await source.run(ctx)
    assert [use.device for use in looks(ctx)[0].uses] == GPU[:2]
