"""A device that changes hands is read at once."""

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
    """The forced readings among the events: they tell of energy, and of no gpu_up."""
    regular = rounds(ctx)
    return [
        e
        for e in ctx.events
        if isinstance(e, SamplesTaken)
        and e not in regular
        and any(r.field == "energy_millijoules" for r in e.readings)
    ]


async def test_energy_and_utilisation_of_the_named_gpus_alone(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        begun = time.monotonic()
        ctx.hint(GPU[0], GPU[2])
        await until(lambda: forced(ctx))
        assert time.monotonic() - begun < 1
        (samples,) = forced(ctx)
    assert {(r.device, r.field) for r in samples.readings} == {
        (uuid, field) for uuid in (GPU[0], GPU[2]) for field in FORCED
    }
    assert samples.processes == ()


async def test_a_mig_instance_means_its_gpu(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        ctx.hint(mig(1, 8))
        await until(lambda: forced(ctx))
        (samples,) = forced(ctx)
    assert {r.device for r in samples.readings} == {GPU[1]}


async def test_between_two_gpus_of_a_round_not_after_it(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    slow_gpus = {"nvmlDeviceGetPowerUsage": 0.3}
    fake_nvml.set(h100s(4, block=slow_gpus))
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceGetPowerUsage"))
        ctx.hint(GPU[3])
        await until(lambda: forced(ctx))
        given_out = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert GPU[3] not in given_out, "the round of 1.2 s is still going on"
        await until(lambda: any(GPU[3] in ups(samples) for samples in rounds(ctx)))
        given_out = {uuid for samples in rounds(ctx) for uuid in ups(samples)}
        assert given_out == set(GPU[:4])


@pytest.mark.parametrize("uuid", ["GPU-nowhere", "MIG-nowhere"])
async def test_an_unknown_device_is_ignored(fake_nvml: FakeNvml, uuid: str) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=60, slow=120)):
        await until(lambda: rounds(ctx))
        ctx.hint(uuid)
        ctx.hint(GPU[0])
        await until(lambda: forced(ctx))
        assert len(forced(ctx)) == 1


async def test_a_forced_read_of_a_hung_gpu_holds_no_one_up(fake_nvml: FakeNvml) -> None:
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
