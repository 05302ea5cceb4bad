"""T23: NVML is initialised again, at growing intervals, if all calls return "unknown"."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from pipeline.join import Join
from pipeline.model import (
    NS,
    ClaimsReplaced,
    ClockTicked,
    Envelope,
    Instant,
    Snapshot,
    SourceAdded,
    SourceLost,
)
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.sources.nvml.harness import GPU, HANGS, next_rounds, options, rounds, running, until, ups
from tests.support.contexts import FakeSourceContext
from tests.support.nodes import claim

UNKNOWN = {"*": 999}


def without_access(count: int = 2) -> Scenario:
    """Return a node without device access: every call returns 999, including nvmlInit."""
    return replace(h100s(count), errors=UNKNOWN, init_error=999)


async def run_until_failure(ctx: FakeSourceContext, source: NvmlSource) -> TransientError:
    with pytest.raises(TransientError) as caught:
        await asyncio.wait_for(source.run(ctx), 10)
    return caught.value


async def lose_access(fake: FakeNvml, ctx: FakeSourceContext, source: NvmlSource) -> TransientError:
    """Run until the source works, remove the device access, and return the source's error."""
    fake.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    before = len(rounds(ctx))
    await until(lambda: len(rounds(ctx)) > before + 1)
    fake.set(without_access())
    with pytest.raises(TransientError) as caught:
        await asyncio.wait_for(task, 10)
    return caught.value


async def test_t23_the_source_ends_with_a_fix_if_all_gpus_return_unknown(
    fake_nvml: FakeNvml,
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    error = await lose_access(fake_nvml, ctx, source)
    assert "all GPUs report unknown (999)" in str(error)
    assert "daemon-reload" in str(error)
    assert "dmesg" in str(error)
    assert ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:2], 0)
    calls = fake_nvml.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


@pytest.mark.slow
async def test_t23_the_retry_interval_doubles_from_5_to_300_seconds(
    fake_nvml: FakeNvml,
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    waits = [(await lose_access(fake_nvml, ctx, source)).retry_after]
    waits += [(await run_until_failure(ctx, source)).retry_after for _ in range(8)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == dict.fromkeys(GPU[:2], 1)
    assert (await lose_access(fake_nvml, ctx, source)).retry_after == 5, "it worked in the meantime"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
async def test_t23_three_rounds_must_fail_if_the_gpu_count_still_works(
    fake_nvml: FakeNvml, count: int
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(count))
    task = asyncio.create_task(NvmlSource(options()).run(ctx))
    await next_rounds(ctx)
    before = len(rounds(ctx))
    fake_nvml.set(h100s(count, errors=UNKNOWN))
    with pytest.raises(TransientError, match="all GPUs report unknown"):
        await asyncio.wait_for(task, 10)
    rounds_down = [r for r in rounds(ctx)[before:] if set(ups(r).values()) == {0}]
    assert len(rounds_down) == 3 + 1, "three rounds and the final gpu_up of all GPUs"


@pytest.mark.parametrize("code", [1, 18, 999])
async def test_t23_the_retry_interval_is_the_same_for_other_driver_errors(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    fake_nvml.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    await next_rounds(ctx)
    fake_nvml.set(replace(h100s(2), errors={"*": code}, init_error=code))
    with pytest.raises(TransientError) as caught:
        await asyncio.wait_for(task, 10)
    assert caught.value.retry_after == 5
    assert (await run_until_failure(ctx, source)).retry_after == 10


@pytest.mark.parametrize("opens", [True, False])
async def test_t23_unknown_from_all_gpus_at_the_start_is_an_error_with_a_fix(
    fake_nvml: FakeNvml, opens: bool
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(without_access(), init_error=0 if opens else 999))
    error = await run_until_failure(ctx, NvmlSource(options()))
    assert (error.retry_after, ctx.events) == (5, [])
    assert "daemon-reload" in str(error)


PARTIAL_FAULTS: dict[str, tuple[Callable[[], Scenario], dict[str, int]]] = {
    "one of two GPUs returns unknown": (
        lambda: h100s(2).with_gpu(1, errors=UNKNOWN),
        {GPU[0]: 1, GPU[1]: 0},
    ),
    "the only GPU is lost": (lambda: h100s(1, lost=True), {GPU[0]: 0}),
    "all GPUs are lost": (lambda: h100s(2, lost=True), {GPU[0]: 0, GPU[1]: 0}),
    "one GPU is lost, one returns unknown": (
        lambda: h100s(2).with_gpu(0, lost=True).with_gpu(1, errors=UNKNOWN),
        {GPU[0]: 0, GPU[1]: 0},
    ),
    "one call returns unknown": (
        lambda: h100s(2, errors={"nvmlDeviceGetPowerUsage": 999}),
        {GPU[0]: 1, GPU[1]: 1},
    ),
    "the count returns unknown": (
        lambda: replace(h100s(2), errors={"nvmlDeviceGetCount_v2": 999}),
        {GPU[0]: 1, GPU[1]: 1},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "expected"), PARTIAL_FAULTS.values(), ids=PARTIAL_FAULTS.keys())
async def test_t23_partial_faults_do_not_end_the_source(
    fake_nvml: FakeNvml, fault: Callable[[], Scenario], expected: dict[str, int]
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(len(expected)))
    async with running(ctx) as task:
        await next_rounds(ctx)
        fake_nvml.set(fault())
        await until(lambda: ups(rounds(ctx)[-1]) == expected)
        await next_rounds(ctx, 5)
        assert not task.done()
    assert fake_nvml.calls()["nvmlInitWithFlags"] == 1


@pytest.mark.slow
async def test_t23_a_hanging_call_prevents_reinitialisation(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(deadline=0.3)) as task:
        await next_rounds(ctx)
        fake_nvml.set(h100s(2, errors=UNKNOWN).with_gpu(0, errors={}, block=HANGS))
        await until(lambda: ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:2], 0))
        await next_rounds(ctx, 3)
        assert not task.done()
        fake_nvml.set(h100s(2))
        await until(lambda: ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:2], 1))


def snapshot_later(ctx: FakeSourceContext) -> Snapshot:
    """Return the snapshot one day after the last event, with a pod that holds the first GPU."""
    join, at = Join(), ctx.clock.now()
    events = [SourceAdded(0), *ctx.events, SourceLost("all GPUs report unknown")]
    for seq, event in enumerate(events, 1):
        join.apply(Envelope("gpus", "nvml", seq, at, event))
    join.apply(Envelope("list", "podlist", 1, at, SourceAdded(1)))
    join.apply(Envelope("list", "podlist", 2, at, ClaimsReplaced((claim("a", GPU[0]),), 1 << 62)))
    later = Instant(at.mono_ns + 86_400 * NS, at.wall_ns + 86_400 * NS)
    join.apply(Envelope("gpus", "nvml", len(events) + 1, later, ClockTicked()))
    return join.snapshot(later)


@pytest.mark.slow
async def test_t23_holders_and_the_last_xid_stay_visible_until_recovery(
    fake_nvml: FakeNvml,
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    fake_nvml.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    await next_rounds(ctx)
    await until(lambda: "nvmlEventSetWait_v2" in fake_nvml.calls())
    fake_nvml.push_xid(0, 79)
    await until(
        lambda: any(
            r.field == "xid_last" and r.value == 79 for s in rounds(ctx) for r in s.readings
        )
    )
    fake_nvml.set(without_access())
    with pytest.raises(TransientError):
        await asyncio.wait_for(task, 10)
    snapshot = snapshot_later(ctx)
    found = {(r.device, r.field): r.value for r in snapshot.readings if not r.attrs}
    assert found == {(GPU[0], "gpu_up"): 0, (GPU[1], "gpu_up"): 0, (GPU[0], "xid_last"): 79}
    holders = snapshot.layout.attributions[GPU[0]].holders
    assert [one.subject.pod for one in holders] == ["a"]
    assert not snapshot.sources["gpus"].up
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx, 3)) == dict.fromkeys(GPU[:2], 1)
    assert snapshot_later(ctx).readings == (), "readings expire as usual"
