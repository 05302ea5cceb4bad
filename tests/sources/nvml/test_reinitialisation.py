"""T23: a driver that answers "unknown" everywhere is initialised again, ever less often."""

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


def dark(count: int = 2) -> Scenario:
    """Device access was lost: every call answers 999, nvmlInit too."""
    return replace(h100s(count), errors=UNKNOWN, init_error=999)


async def failed(ctx: FakeSourceContext, source: NvmlSource) -> TransientError:
    with pytest.raises(TransientError) as caught:
        await asyncio.wait_for(source.run(ctx), 10)
    return caught.value


async def lost(fake: FakeNvml, ctx: FakeSourceContext, source: NvmlSource) -> TransientError:
    """Run until it works, let it all be gone, and return what the source ends with."""
    fake.set(h100s(2))
    task = asyncio.create_task(source.run(ctx))
    before = len(rounds(ctx))
    await until(lambda: len(rounds(ctx)) > before + 1)
    fake.set(dark())
    with pytest.raises(TransientError) as caught:
        await asyncio.wait_for(task, 10)
    return caught.value


async def test_t23_all_gpus_that_answer_unknown_end_the_source_with_what_helps(
    fake_nvml: FakeNvml,
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    error = await lost(fake_nvml, ctx, source)
    assert "all GPUs report unknown (999)" in str(error)
    assert "daemon-reload" in str(error)
    assert "dmesg" in str(error)
    assert ups(rounds(ctx)[-1]) == dict.fromkeys(GPU[:2], 0)
    calls = fake_nvml.calls()
    assert calls["nvmlInitWithFlags"] == calls["nvmlShutdown"] == 1


async def test_t23_it_is_initialised_after_5_10_and_at_most_300_seconds(
    fake_nvml: FakeNvml,
) -> None:
    ctx, source = FakeSourceContext(), NvmlSource(options())
    waits = [(await lost(fake_nvml, ctx, source)).retry_after]
    waits += [(await failed(ctx, source)).retry_after for _ in range(8)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == dict.fromkeys(GPU[:2], 1)
    assert (await lost(fake_nvml, ctx, source)).retry_after == 5, "it worked meanwhile"


@pytest.mark.parametrize("count", [1, 2])
async def test_t23_where_the_driver_still_counts_its_gpus_three_rounds_have_to_fail(
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
    dark = [r for r in rounds(ctx)[before:] if set(ups(r).values()) == {0}]
    assert len(dark) == 3 + 1, "and the last word on all of them"


@pytest.mark.parametrize("code", [1, 18, 999])
async def test_t23_one_rule_for_all_that_takes_the_driver_away(
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
    assert (await failed(ctx, source)).retry_after == 10


@pytest.mark.parametrize("opens", [True, False])
async def test_t23_so_it_is_at_the_start(fake_nvml: FakeNvml, opens: bool) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(dark(), init_error=0 if opens else 999))
    error = await failed(ctx, NvmlSource(options()))
    assert (error.retry_after, ctx.events) == (5, [])
    assert "daemon-reload" in str(error)


ALIVE: dict[str, tuple[Callable[[], Scenario], dict[str, int]]] = {
    "one of two": (lambda: h100s(2).with_gpu(1, errors=UNKNOWN), {GPU[0]: 1, GPU[1]: 0}),
    "a GPU that is lost": (lambda: h100s(1, lost=True), {GPU[0]: 0}),
    "all GPUs are lost": (lambda: h100s(2, lost=True), {GPU[0]: 0, GPU[1]: 0}),
    "one is lost, one answers unknown": (
        lambda: h100s(2).with_gpu(0, lost=True).with_gpu(1, errors=UNKNOWN),
        {GPU[0]: 0, GPU[1]: 0},
    ),
    "a call that fails": (
        lambda: h100s(2, errors={"nvmlDeviceGetPowerUsage": 999}),
        {GPU[0]: 1, GPU[1]: 1},
    ),
    "the count": (
        lambda: replace(h100s(2), errors={"nvmlDeviceGetCount_v2": 999}),
        {GPU[0]: 1, GPU[1]: 1},
    ),
}


@pytest.mark.parametrize(("trouble", "expected"), ALIVE.values(), ids=ALIVE.keys())
async def test_t23_less_than_all_alike_is_no_reason(
    fake_nvml: FakeNvml, trouble: Callable[[], Scenario], expected: dict[str, int]
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(len(expected)))
    async with running(ctx) as task:
        await next_rounds(ctx)
        fake_nvml.set(trouble())
        await until(lambda: ups(rounds(ctx)[-1]) == expected)
        await next_rounds(ctx, 5)
        assert not task.done()
    assert fake_nvml.calls()["nvmlInitWithFlags"] == 1


async def test_t23_nor_while_a_call_is_stuck(fake_nvml: FakeNvml) -> None:
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


def shown(ctx: FakeSourceContext) -> Snapshot:
    """What the page says a day after the last word, with a pod that holds the first GPU."""
    join, at = Join(), ctx.clock.now()
    events = [SourceAdded(0), *ctx.events, SourceLost("all GPUs report unknown")]
    for seq, event in enumerate(events, 1):
        join.apply(Envelope("gpus", "nvml", seq, at, event))
    join.apply(Envelope("list", "podlist", 1, at, SourceAdded(1)))
    join.apply(Envelope("list", "podlist", 2, at, ClaimsReplaced((claim("a", GPU[0]),), 1 << 62)))
    later = Instant(at.mono_ns + 86_400 * NS, at.wall_ns + 86_400 * NS)
    join.apply(Envelope("gpus", "nvml", len(events) + 1, later, ClockTicked()))
    return join.snapshot(later)


async def test_t23_owners_and_the_last_xid_stay_visible_and_all_recovers(
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
    fake_nvml.set(dark())
    with pytest.raises(TransientError):
        await asyncio.wait_for(task, 10)
    snapshot = shown(ctx)
    given_out = {(r.device, r.field): r.value for r in snapshot.readings if not r.attrs}
    assert given_out == {(GPU[0], "gpu_up"): 0, (GPU[1], "gpu_up"): 0, (GPU[0], "xid_last"): 79}
    holders = snapshot.layout.attributions[GPU[0]].holders
    assert [one.subject.pod for one in holders] == ["a"]
    assert not snapshot.sources["gpus"].up
    fake_nvml.set(h100s(2))
    async with running(ctx, source):
        assert ups(await next_rounds(ctx, 3)) == dict.fromkeys(GPU[:2], 1)
    assert shown(ctx).readings == (), "what is read goes away as ever"
