"""A reload with changed options makes a new source, which continues from `ctx.restart_state`."""

import threading
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import NS, SamplesTaken
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, h100s
from tests.sources.nvml.harness import (
    GPU,
    HANGS,
    good_for,
    next_rounds,
    options,
    rounds,
    running,
    sampling_threads,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

pytestmark = pytest.mark.usefixtures("no_thread_left")


def after_reload(ctx: FakeSourceContext) -> FakeSourceContext:
    """Return the context that the runtime creates for the new source."""
    new = FakeSourceContext()
    new.restart_state = ctx.restart_state
    return new


def errors_of(ctx: FakeSourceContext, uuid: str) -> dict[str, int | float]:
    """Return the latest XID counters of a GPU."""
    found: dict[str, int | float] = {}
    for event in ctx.events:
        if isinstance(event, SamplesTaken):
            xids = {k: v for k, v in values(event, uuid).items() if k.startswith("xid_errors")}
            found = xids or found
    return found


async def test_xid_counters_continue_and_changed_codes_apply(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    runs = [
        ((31, 79), {"xid_errors{31}": 1, "xid_errors{79}": 0}),
        ((31, 48), {"xid_errors{31}": 2, "xid_errors{48}": 0}),
        ((13,), {"xid_errors{31}": 3, "xid_errors{13}": 0}),
    ]
    for codes, expected in runs:
        ctx = after_reload(ctx)
        fake_nvml.calls(reset=True)
        async with running(ctx, options(xid_codes=codes)):
            await until(lambda: fake_nvml.calls().get("nvmlDeviceRegisterEvents"))
            fake_nvml.push_xid(0, 31)
            await until(lambda expected=expected, ctx=ctx: errors_of(ctx, GPU[0]) == expected)


@pytest.mark.slow
async def test_known_gpus_stay_known_including_those_that_are_down(
    fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, options()):
        await next_rounds(ctx)
        fake_nvml.set(h100s(2))
        await next_rounds(ctx)
    ctx = after_reload(ctx)
    async with running(ctx, options(interval=0.2)):
        assert ups(await next_rounds(ctx)) == {GPU[0]: 1, GPU[1]: 1, GPU[2]: 0}
    assert caplog.text.count("is down") == 1, "logged once over the reload"


@pytest.mark.slow
async def test_a_changed_interval_and_deadline_apply(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetPowerUsage": 0.2}))
    async with running(ctx, options(deadline=5)):
        assert ups(await next_rounds(ctx)) == dict.fromkeys(GPU[:2], 1)
    ctx = after_reload(ctx)
    async with running(ctx, options(interval=0.3, slow=0.3, deadline=0.1)):
        await until(lambda: rounds(ctx))
        assert ups(rounds(ctx)[0]) == {GPU[0]: 0, GPU[1]: 1}
        assert good_for(rounds(ctx)[0], ["power_watts"]) == {9 * NS // 10}


@pytest.mark.slow
async def test_a_hanging_thread_is_remembered_and_not_repeated(fake_nvml: FakeNvml) -> None:
    before = threading.active_count()  # threads of other tests may still be ending
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options()):
        await next_rounds(ctx)
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    counts: list[int] = []
    for turn in range(12):
        ctx = after_reload(ctx)
        async with running(ctx, options(interval=0.1 + turn / 1000, deadline=0.1)):
            await until(lambda ctx=ctx: rounds(ctx))
            assert ups(rounds(ctx)[-1]) == {GPU[0]: 0, GPU[1]: 1}
            counts.append(sampling_threads())
    assert counts == [2] * 12
    assert threading.active_count() < before + 8
    assert fake_nvml.calls()["nvmlInitWithFlags"] == 2, (
        "NVML is not shut down while a thread hangs in it"
    )
    ctx = after_reload(ctx)
    async with running(ctx, options()):
        fake_nvml.set(h100s(2))
        await until(lambda: rounds(ctx) and ups(rounds(ctx)[-1]).get(GPU[0]) == 1)


@pytest.mark.slow
async def test_at_most_two_threads_hang_over_several_reloads(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(4))
    async with running(ctx, options()):
        await next_rounds(ctx)
    hanging = h100s(4)
    for place in range(4):
        hanging = hanging.with_gpu(place, block=HANGS)
    fake_nvml.set(hanging)
    for _ in range(4):
        ctx = after_reload(ctx)
        with pytest.raises(TransientError, match="driver calls hang in"):
            await NvmlSource(options(deadline=0.1)).run(ctx)
        assert sampling_threads() == 2


@pytest.mark.slow
async def test_reloads_during_a_hanging_call_keep_the_other_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options()):
        await next_rounds(ctx)
    fake_nvml.calls(reset=True)
    fake_nvml.set(h100s(2).with_gpu(0, block=HANGS))
    for _ in range(3):
        ctx = after_reload(ctx)
        async with running(ctx, options(deadline=30)):
            await until(
                lambda ctx=ctx: fake_nvml.calls().get("nvmlDeviceGetPowerUsage") or rounds(ctx)
            )
    ctx = after_reload(ctx)
    async with running(ctx, options(deadline=30)):
        await until(lambda: rounds(ctx))
        assert ups(rounds(ctx)[-1]) == {GPU[0]: 0, GPU[1]: 1}
        assert sampling_threads() == 2


async def test_a_hanging_nvml_init_is_remembered(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(1), block={"nvmlInitWithFlags": 60.0}))
    for message in ("nvmlInit has not returned", "nvmlInit still hangs", "nvmlInit still hangs"):
        ctx = after_reload(ctx)
        with pytest.raises(TransientError, match=message):
            await NvmlSource(options(deadline=0.1)).run(ctx)
        assert sampling_threads() == 1
