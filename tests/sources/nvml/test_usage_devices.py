"""Which devices usage samples have: MIG instances before their GPU, and selected devices."""

import pytest

from pipeline.model import DevicesDiscovered, ProcessesSampled
from tests.fakes.nvml import FakeNvml, Gpm, Mig, Proc, Scenario, a100, h100, h100s, mixed, slices
from tests.sources.nvml.harness import GPU, errors, mig, rounds, running, until
from tests.sources.nvml.usage_helpers import next_usage_samples, usage_options, usage_samples, uses
from tests.support.contexts import FakeSourceContext

GIB = 1 << 30


@pytest.mark.slow
async def test_a_sample_lists_mig_instances_before_their_gpu(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    instances = slices(0, "3g.40gb", "1g.10gb", processes=[Proc(5, GIB)])
    fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)]))
    async with running(ctx, usage_options()):
        await next_usage_samples(ctx, 3)
    for sample in usage_samples(ctx):
        assert [use.device for use in sample.uses] == [mig(0, 7), mig(0, 8), GPU[0]]
    first, second, gpu = usage_samples(ctx)[-1].uses
    for use in (first, second):
        assert [(p.pid, p.memory_bytes, p.busy_ns) for p in use.processes] == [(5, GIB, None)]
        assert use.memory_used_bytes == GIB
        assert use.energy_mj is None
        assert use.listed
    assert gpu.energy_mj is not None
    assert gpu.since == usage_samples(ctx)[-2].uses[2].at
    assert (gpu.processes, gpu.memory_used_bytes, gpu.busy_ns) == ((), None, None)
    assert not gpu.listed


@pytest.mark.slow
async def test_the_busy_time_of_an_instance_is_from_gpm(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    instances = slices(0, "3g.40gb", "3g.40gb", gpm={1: Gpm(40)})
    fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)]))
    async with running(ctx, usage_options(every=0.3)):
        await next_usage_samples(ctx, 3)
    for uuid in (mig(0, 7), mig(0, 8)):
        first, *rest = uses(ctx, uuid)
        assert first.busy_ns is None
        for use in rest:
            assert use.since is not None
            assert use.busy_ns == round(0.4 * (use.at.mono_ns - use.since.mono_ns))
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_gpm_readings_of_rounds_do_not_disturb_usage_samples(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    instances = slices(0, "3g.40gb", gpm={1: Gpm(40)})
    fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)]))
    async with running(ctx, usage_options(every=0.4, interval=0.15)):
        await next_usage_samples(ctx, 3)
    found = [
        r.value
        for samples in rounds(ctx)
        for r in samples.readings
        if (r.device, r.field) == (mig(0, 7), "graphics_engine_active_ratio")
    ]
    assert set(found) == {0.4}
    assert all(use.busy_ns for use in uses(ctx, mig(0, 7))[1:])
    assert fake_nvml.gpm_samples()[1] == 0


@pytest.mark.slow
async def test_instances_that_share_a_gpu_instance_have_unknown_busy_time(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    halves = [
        Mig(gi=7, ci=0, profile="1c.3g.40gb", uuid="MIG-a"),
        Mig(gi=7, ci=1, profile="1c.3g.40gb", uuid="MIG-b"),
        Mig(gi=9, ci=0, profile="3g.40gb", uuid="MIG-c"),
    ]
    fake_nvml.set(Scenario(gpus=[h100(0, mig=halves)]))
    async with running(ctx, usage_options(every=0.3)):
        last = await next_usage_samples(ctx, 3)
    busy = {use.device: use.busy_ns for use in last.uses}
    assert busy == {"MIG-a": None, "MIG-b": None, "MIG-c": 0, GPU[0]: None}


@pytest.mark.slow
async def test_instances_of_a_card_without_gpm_have_unknown_busy_time(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[a100(0, mig=slices(0, "3g.40gb", processes=[Proc(5)]))]))
    async with running(ctx, usage_options(every=0.3)):
        last = await next_usage_samples(ctx, 3)
    assert [use.busy_ns for use in last.uses] == [None, None]
    assert last.uses[0].processes[0].memory_bytes == GIB
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_new_instance_is_discovered_before_its_usage_is_reported(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[h100(0, mig=slices(0, "7g.80gb"))]))
    async with running(ctx, usage_options(every=0.15)):
        for turn in range(4):
            instances = [
                Mig(gi=7 + at, profile="3g.40gb", uuid=f"MIG-{turn}-{at}") for at in range(2)
            ]
            fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)]))
            await until(lambda turn=turn: len(uses(ctx, f"MIG-{turn}-1")) > 1)
    assert len(rounds(ctx)) < 4, "the instances were not found by rounds"
    known: set[str] = set()
    for event in ctx.events:
        if isinstance(event, DevicesDiscovered):
            known = {device.uuid for device in event.devices}
        elif isinstance(event, ProcessesSampled):
            assert {use.device for use in event.uses} <= known
    for turn in range(4):
        first, second = uses(ctx, f"MIG-{turn}-0")[:2]
        assert (first.since, second.since) == (None, first.at)
    live, misused = fake_nvml.gpm_samples()
    assert misused == 0
    assert live <= 2 * 2 * 2, "samples of the partition before may still be allocated"


@pytest.mark.slow
async def test_the_intervals_of_a_gpu_restart_when_its_mig_mode_ends(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[h100(0, mig=[])]))
    async with running(ctx, usage_options(interval=0.2, slow=0.2)):
        await next_usage_samples(ctx, 2)
        fake_nvml.set(h100s(1))
        await until(lambda: uses(ctx, GPU[0])[-1].memory_used_bytes)
    first = next(use for use in uses(ctx, GPU[0]) if use.memory_used_bytes is not None)
    assert (first.since, first.busy_ns) == (None, None)


ALL = {GPU[0], GPU[1], GPU[2], GPU[3], mig(1, 7), mig(1, 8), mig(1, 9), mig(3, 7)}
SELECTIONS = {
    "all": ALL,
    "f": ALL,
    "g": {uuid for uuid in ALL if uuid.startswith("GPU")},
    "i": {uuid for uuid in ALL if uuid.startswith("MIG")},
    "g:0,1": {GPU[0], GPU[1]},
    "g:2+i:21": {GPU[2], mig(3, 7)},
}


@pytest.mark.slow
@pytest.mark.parametrize(("selection", "expected"), SELECTIONS.items(), ids=SELECTIONS.keys())
async def test_only_selected_devices_are_sampled(
    fake_nvml: FakeNvml, selection: str, expected: set[str]
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, usage_options(devices=selection)):
        await next_usage_samples(ctx, 2)
        ctx.hint(*GPU[:4])
        await next_usage_samples(ctx, 2)
    assert {use.device for sample in usage_samples(ctx) for use in sample.uses} == expected
    assert all(use.memory_used_bytes is None for use in uses(ctx, GPU[1])), "it has MIG instances"
    busy = {use.device for use in usage_samples(ctx)[-1].uses if use.busy_ns is not None}
    assert busy <= expected - {GPU[1], GPU[3]}
