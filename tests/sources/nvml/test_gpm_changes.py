"""GPM while devices appear, disappear, share and fail. Samples of two devices never mix."""

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from sources.nvml import codes
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Gpm, Mig, Scenario, h100, h100s, slices
from tests.sources.nvml.harness import (
    GPU,
    errors,
    mig,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
)
from tests.sources.nvml.test_gpm import ACTIVE, SPACED, context, of


def halves(**changes: object) -> list[Mig]:
    """Return two compute instances on GPU instance 7, and the only one on GPU instance 9."""
    return [
        Mig(gi=7, ci=0, profile="1c.3g.40gb", uuid="MIG-a", gpm={2: Gpm(40)}),
        Mig(gi=7, ci=1, profile="1c.3g.40gb", uuid="MIG-b", **changes),  # type: ignore[arg-type]
        Mig(gi=9, ci=0, profile="1c.3g.40gb", uuid="MIG-c", gpm={2: Gpm(20)}),
    ]


@pytest.mark.slow
async def test_compute_instances_that_share_a_gpu_instance_have_no_gpm(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    node = Scenario(gpus=[h100(0, mig=halves())])
    fake_nvml.set(node)
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
        assert {r.device for r in samples.readings} == {GPU[0], "MIG-c"}
        fake_nvml.set(node.with_gpu(0, mig=[halves()[0], halves()[2]]))
        since = rounds(ctx)[-1].readings[0].at
        await until(lambda: of(rounds(ctx), "MIG-a"))
        first = of(rounds(ctx), "MIG-a")[0]
        assert first.value == pytest.approx(0.4)
        assert first.window_start is not None
        assert first.window_start > since, "the window starts after the sharing ended"
        fake_nvml.set(node)
        await next_rounds(ctx)
        assert not of(rounds(ctx)[-1:], "MIG-a")
    assert errors(ctx) == {}


async def test_instances_that_may_share_with_an_unreadable_one_have_no_gpm(
    fake_nvml: FakeNvml,
) -> None:
    ctx = context(ACTIVE)
    hidden = halves(errors={"nvmlDeviceGetUUID": 999})
    whole = Mig(gi=11, profile="1g.10gb", uuid="MIG-d")
    fake_nvml.set(Scenario(gpus=[h100(0, mig=[*hidden, whole])]))
    async with running(ctx, options(**SPACED)):
        samples = await next_rounds(ctx)
    assert [uuid for uuid in ("MIG-a", "MIG-c", "MIG-d") if of([samples], uuid)] == ["MIG-d"]


@pytest.mark.slow
async def test_samples_of_a_new_and_an_old_partition_are_never_compared(
    fake_nvml: FakeNvml,
) -> None:
    """The driver reuses the ids of GPU instances. Only the uuid identifies an instance."""
    ctx = context(ACTIVE)
    async with running(ctx, options(interval=0.12, slow=0.12)):
        for turn in range(6):
            instances = [
                replace(m, uuid=f"MIG-{turn}-{m.gi}") for m in slices(0, "3g.40gb", "3g.40gb")
            ]
            at = time.monotonic_ns()
            fake_nvml.set(Scenario(gpus=[h100(0, mig=instances), h100(1)]))
            await until(lambda instances=instances: of(rounds(ctx), instances[0].uuid))
            for reading in of(rounds(ctx), instances[0].uuid):
                assert reading.window_start is not None
                assert reading.window_start.mono_ns > at
            live, misused = fake_nvml.gpm_samples()
            assert misused == 0
            assert live <= 2 * 4 + 2 * 2, "samples of the partition before may still be allocated"
        fake_nvml.set(Scenario(gpus=[h100(0), h100(1)]))
        await next_rounds(ctx, 3)
    assert fake_nvml.gpm_samples() == (0, 0), "all are freed, and none was used after being freed"
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_windows_restart_after_a_gpu_was_lost(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    healthy = Scenario(gpus=[h100(0, mig=slices(0, "3g.40gb")), h100(1), h100(2)])
    fake_nvml.set(healthy)
    async with running(ctx, options(interval=0.12, slow=0.24)):
        await next_rounds(ctx)
        for place, uuid in ((0, mig(0, 7)), (1, GPU[1])):
            fake_nvml.set(healthy.with_gpu(place, lost=True))
            await until(lambda place=place: ups(rounds(ctx)[-1])[GPU[place]] == 0)
            at = time.monotonic_ns()
            fake_nvml.set(healthy)
            await until(lambda at=at, uuid=uuid: of(rounds(ctx), uuid)[-1].at.mono_ns > at)
            fresh = [r for r in of(rounds(ctx), uuid) if r.at.mono_ns > at]
            assert fresh[0].window_start is not None
            assert fresh[0].window_start.mono_ns > at
    untouched = of(rounds(ctx), GPU[2])
    for before, after in itertools.pairwise(untouched):
        assert after.window_start == before.at, "faults of other GPUs do not affect it"
    assert fake_nvml.gpm_samples() == (0, 0)


@pytest.mark.slow
async def test_windows_restart_when_mig_mode_changes(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    async with running(ctx, options(**SPACED)):
        for instances in (None, slices(0, "3g.40gb"), None):
            at = time.monotonic_ns()
            fake_nvml.set(h100s(1, mig=instances))
            await next_rounds(ctx, 4)
            last = of(rounds(ctx), GPU[0])
            assert all(
                r.window_start is not None and not r.window_start.mono_ns < at < r.at.mono_ns
                for r in last
            )
            assert last[-1].at.mono_ns > at


@pytest.mark.slow
async def test_samples_are_freed_when_nvml_is_initialised_again(fake_nvml: FakeNvml) -> None:
    ctx = context(ACTIVE)
    for _ in range(3):
        fake_nvml.set(h100s(2))
        task = asyncio.create_task(NvmlSource(options(**SPACED)).run(ctx))
        await next_rounds(ctx)
        assert fake_nvml.gpm_samples() == (4, 0)
        fake_nvml.set(replace(h100s(2), errors={"nvmlDeviceGetCount": codes.UNINITIALIZED}))
        with pytest.raises(codes.DriverGoneError):
            await task
        assert fake_nvml.gpm_samples() == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
async def test_samples_of_a_hanging_call_are_not_freed(
    fake_nvml: FakeNvml, no_thread_left: None, call: str
) -> None:
    ctx = context(ACTIVE)
    async with running(ctx, options(interval=0.15, slow=0.15, deadline=0.3)):
        await next_rounds(ctx)
        fake_nvml.set(h100s(2).with_gpu(0, block={call: 60.0}))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 0)
        await next_rounds(ctx)
    # The source has ended while its thread still hangs in the driver. Another run continues.
    async with running(ctx, options(interval=0.15, slow=0.15, deadline=0.3)):
        await until(lambda: ups(rounds(ctx)[-1]) == {GPU[0]: 0, GPU[1]: 1})
        assert fake_nvml.gpm_samples()[1] == 0
        fake_nvml.set(h100s(2))
        await until(lambda: len(of(rounds(ctx)[-1:], GPU[0])) == 1)
    assert fake_nvml.gpm_samples() == (0, 0)
