"""Hints: a device whose holder changes is read immediately."""

import time

import pytest

from pipeline.model import SamplesTaken
from tests.fakes.nvml import FakeNvml, h100s, mixed
from tests.sources.nvml.harness import GPU, mig, options, rounds, running, until, ups
from tests.support.contexts import FakeSourceContext

FORCED = {
    "energy_millijoules",
    "gpu_utilization_percent",
    "memory_copy_utilization_percent",
}


def forced(ctx: FakeSourceContext) -> list[SamplesTaken]:
    """Return the forced readings among the events: they have energy, but no gpu_up."""
    regular = rounds(ctx)
    return [
        e
        for e in ctx.events
        if isinstance(e, SamplesTaken)
        and e not in regular
        and any(r.field == "energy_millijoules" for r in e.readings)
    ]


async def test_a_hint_reads_energy_and_utilisation_of_the_named_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        started = time.monotonic()
        ctx.hint(GPU[0], GPU[2])
        await until(lambda: forced(ctx))
        assert time.monotonic() - started < 1
        (samples,) = forced(ctx)
    assert {(r.device, r.field) for r in samples.readings} == {
        (uuid, field) for uuid in (GPU[0], GPU[2]) for field in FORCED
    }
    assert samples.processes == ()


async def test_a_hint_for_a_mig_instance_reads_its_gpu(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        ctx.hint(mig(1, 8))
        await until(lambda: forced(ctx))
        (samples,) = forced(ctx)
    assert {r.device for r in samples.readings} == {GPU[1]}


@pytest.mark.slow
async def test_a_hint_is_handled_between_two_gpus_of_a_round(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    slow_gpus = {"nvmlDeviceGetPowerUsage": 0.3}
    fake_nvml.set(h100s(4, block=slow_gpus))
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
        ctx.hint(GPU[3])
        await until(lambda: forced(ctx))
        in_rounds = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert GPU[3] not in in_rounds, "the round of 1.2 s is still running"
        await until(lambda: any(GPU[3] in ups(samples) for samples in rounds(ctx)))
        in_rounds = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert in_rounds == set(GPU[:4])


@pytest.mark.parametrize("uuid", ["GPU-nowhere", "MIG-nowhere"])
async def test_a_hint_for_an_unknown_device_is_ignored(fake_nvml: FakeNvml, uuid: str) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        ctx.hint(uuid)
        ctx.hint(GPU[0])
        await until(lambda: forced(ctx))
        assert len(forced(ctx)) == 1


@pytest.mark.slow
async def test_a_hint_for_a_hanging_gpu_does_not_delay_other_reads(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(interval=0.1, slow=60, deadline=0.2)):
        await until(lambda: rounds(ctx))
        fake_nvml.set(h100s(2).with_gpu(0, block={"nvmlDeviceGetTotalEnergyConsumption": 60.0}))
        ctx.hint(GPU[0], GPU[1])
        await until(lambda: forced(ctx))
        assert {r.device for r in forced(ctx)[0].readings} == {GPU[1]}
        before = len(rounds(ctx))
        await until(lambda: len(rounds(ctx)) > before + 2)
