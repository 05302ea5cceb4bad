"""A slow GPU does not delay the readings of others, and a quick round is one event."""

import asyncio
import itertools
from typing import Any

import pytest

from pipeline.model import NS, SamplesTaken
from tests.fakes.nvml import FakeNvml, h100s, mixed
from tests.sources.nvml.harness import (
    GPU,
    fields,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
)
from tests.support.contexts import FakeSourceContext

SLOW = {"nvmlDeviceGetPowerUsage": 0.2}


@pytest.mark.usefixtures("partial_rounds")
@pytest.mark.slow
async def test_readings_are_reported_while_a_slow_gpu_is_still_read(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3).with_gpu(1, block={"nvmlDeviceGetPowerUsage": 1.0}))
    async with running(ctx, options(interval=60, slow=60, deadline=5)):
        await until(lambda: rounds(ctx))
        assert ups(rounds(ctx)[0]) == {GPU[0]: 1}, "no reading of the other GPUs yet"
        assert "power_watts" in fields(rounds(ctx)[0], GPU[0])
        assert [listed.device for listed in rounds(ctx)[0].processes] == [GPU[0]]
        # One event or two, depending on the time that the third GPU takes.
        await until(
            lambda: {u for samples in rounds(ctx)[1:] for u in ups(samples)} >= set(GPU[1:3])
        )
    assert all(up == 1 for samples in rounds(ctx) for up in ups(samples).values())


@pytest.mark.usefixtures("partial_rounds")
@pytest.mark.slow
@pytest.mark.parametrize("deadline", [0.4, 5])
async def test_no_reading_is_delayed_for_long_or_reported_twice(
    fake_nvml: FakeNvml, deadline: float
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(6, block=SLOW))
    async with running(ctx, options(interval=60, slow=60, deadline=deadline)):
        await until(lambda: any(GPU[5] in ups(samples) for samples in rounds(ctx)))
        emitted = list(zip(ctx.events, ctx.emitted_at, strict=True))
    series = [
        (reading.device, reading.field, reading.attrs)
        for samples in rounds(ctx)
        for reading in samples.readings
        if not reading.field.startswith("xid_")
    ]
    assert len(series) == len(set(series))
    assert {device for device, _, _ in series} == set(GPU[:6])
    for event, at in emitted:
        if isinstance(event, SamplesTaken):
            oldest = min((reading.at.mono_ns for reading in event.readings), default=at.mono_ns)
            # At most 0.25 s plus the read of one GPU. The whole round takes 1.2 s.
            assert at.mono_ns - oldest < 0.8 * NS


async def test_gpu_up_has_the_time_at_which_its_gpu_was_read(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(4, block={"nvmlDeviceGetPowerUsage": 0.05}))
    async with running(ctx, options(interval=60, slow=60)):
        await until(lambda: rounds(ctx))
        (samples,) = rounds(ctx)
    at = {r.device: r.at.mono_ns for r in samples.readings if r.field == "gpu_up"}
    first = [at[uuid] for uuid in GPU[:4]]
    assert all(later - earlier > 0.04 * NS for earlier, later in itertools.pairwise(first))
    for reading in samples.readings:
        if reading.field == "sm_clock_mhz":
            assert reading.at.mono_ns == at[reading.device]


@pytest.mark.usefixtures("partial_rounds")
@pytest.mark.slow
async def test_a_hanging_gpu_does_not_delay_readings_of_others(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3).with_gpu(1, block={"nvmlDeviceGetPowerUsage": 60.0}))
    async with running(ctx, options(interval=60, slow=60, deadline=0.6)):
        await until(lambda: len(rounds(ctx)) > 1)
    assert [ups(samples) for samples in rounds(ctx)] == [{GPU[0]: 1}, {GPU[1]: 0, GPU[2]: 1}]
    fake_nvml.set(h100s(1))


async def test_a_forced_reading_is_never_followed_by_an_older_one(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(1, block={"nvmlDeviceGetPowerUsage": 0.2}))
    async with running(ctx, options(interval=60, slow=60)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage") == 2)
        ctx.hint(GPU[0])
        await until(lambda: any(GPU[1] in ups(samples) for samples in rounds(ctx)))
    at = [
        reading.at.mono_ns
        for event in ctx.events
        if isinstance(event, SamplesTaken)
        for reading in event.readings
        if (reading.device, reading.field) == (GPU[0], "energy_millijoules")
    ]
    assert at == sorted(at)
    assert at


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [h100s(8), mixed()])
async def test_a_quick_round_is_one_event_and_one_wakeup_of_the_loop(
    fake_nvml: FakeNvml, scenario: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(scenario)
    loop: Any = asyncio.get_running_loop()
    waits = 0
    select = loop._selector.select

    def counting(timeout: float | None = None) -> Any:
        nonlocal waits
        waits += timeout is None or timeout > 0
        return select(timeout)

    async with running(ctx, options(interval=0.1, slow=60)):
        await next_rounds(ctx, 3)
        samples = len(await ctx.wait_for(SamplesTaken))
        await ctx.wait_for(SamplesTaken, samples + 1)
        monkeypatch.setattr(loop._selector, "select", counting)
        await ctx.wait_for(SamplesTaken, samples + 6)
        monkeypatch.undo()
        assert len(await ctx.wait_for(SamplesTaken)) == samples + 6
    last = rounds(ctx)[-6:]
    assert all(set(ups(s)) == set(GPU[: len(scenario.gpus)]) for s in last), "complete rounds"
    assert waits <= 5
