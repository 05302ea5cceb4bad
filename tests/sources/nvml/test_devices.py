"""The option `devices` on nodes without MIG, with MIG, and with MIG on some GPUs."""

import asyncio

import pytest

from pipeline.base.errors import PermanentError, TransientError
from pipeline.fields import CATALOGUE
from pipeline.model import NS, SamplesTaken
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Proc, Scenario, h100, h100s, mig_node, mixed, slices
from tests.sources.nvml.harness import (
    GPU,
    inventories,
    listed,
    mig,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext


def devices_with_readings(samples: SamplesTaken) -> set[str]:
    return {reading.device for reading in samples.readings}


WHOLE = set(GPU[:4])
INSTANCES = {mig(1, 7), mig(1, 8), mig(1, 9), mig(3, 7)}
# The instances of GPU 1 have the numbers 7 to 9, the smallest first. That of GPU 3 has 21.
NUMBERED = {7: mig(1, 9), 8: mig(1, 8), 9: mig(1, 7), 21: mig(3, 7)}

READ = [
    ("whole GPUs", h100s(4), "all", WHOLE),
    ("whole GPUs", h100s(4), "f", WHOLE),
    ("whole GPUs", h100s(4), "g", WHOLE),
    ("whole GPUs", h100s(4), "g:0,2-3", {GPU[0], GPU[2], GPU[3]}),
    ("whole GPUs", h100s(4), "g+i", WHOLE),
    ("mixed", mixed(), "all", WHOLE | INSTANCES),
    ("mixed", mixed(), "f", WHOLE | INSTANCES),
    ("mixed", mixed(), "g", WHOLE),
    ("mixed", mixed(), "g:1", {GPU[1]}),
    ("mixed", mixed(), "i", INSTANCES),
    ("mixed", mixed(), "i:7,21", {NUMBERED[7], NUMBERED[21]}),
    ("mixed", mixed(), "g:0+i:8-9", {GPU[0], NUMBERED[8], NUMBERED[9]}),
    ("MIG", mig_node(), "f", {*GPU, *(mig(at, gi) for at in range(8) for gi in range(7, 14))}),
    ("MIG", mig_node(), "g", set(GPU)),
    ("MIG", mig_node(), "i:0,55", {mig(0, 7), mig(7, 13)}),
    ("MIG on and no instance", Scenario(gpus=[h100(0, mig=[])]), "f", {GPU[0]}),
    ("MIG on and no instance", Scenario(gpus=[h100(0, mig=[])]), "i", set()),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node", "text", "read"), [c[1:] for c in READ], ids=[f"{c[0]}, {c[2]}" for c in READ]
)
async def test_only_selected_devices_have_readings_and_all_are_reported(
    fake_nvml: FakeNvml, node: Scenario, text: str, read: set[str]
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(node)
    async with running(ctx, options(devices=text, interval=0.2, slow=0.2)):
        if read & set(GPU):
            samples = await next_rounds(ctx, 3)
        else:  # rounds() finds rounds by gpu_up, which instances don't have
            samples = (await ctx.wait_for(SamplesTaken, 5))[-1]
    assert devices_with_readings(samples) == read
    assert set(ups(samples)) == read & set(GPU)
    replaced = {gpu.uuid for gpu in node.gpus if gpu.mig} if text == "f" else set()
    assert {found.device for found in samples.processes} == read - replaced
    all_devices = {gpu.uuid for gpu in node.gpus}
    all_devices |= {instance.uuid for gpu in node.gpus for instance in gpu.mig or ()}
    assert set(inventories(ctx)[0]) == all_devices, "the join still knows all devices"


@pytest.mark.slow
async def test_f_reports_each_quantity_once(fake_nvml: FakeNvml) -> None:
    """Fields that instances have are read for instances, others for the GPU. Sums count once."""
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, options(devices="f", interval=0.2, slow=0.2)):
        samples = await next_rounds(ctx, 3)
    fields: dict[str, set[str]] = {}
    for reading in samples.readings:
        fields.setdefault(reading.device, set()).add(reading.field)
    instance_fields = {field.name for field in CATALOGUE if field.mig}
    whole_gpu, mig_gpu, instance = fields[GPU[0]], fields[GPU[1]], fields[mig(1, 7)]
    assert instance <= instance_fields
    assert "memory_used_bytes" in instance
    assert mig_gpu.isdisjoint(instance_fields)
    assert {"gpu_up", "gpu_temperature_celsius", "power_watts", "energy_millijoules"} <= mig_gpu
    assert mig_gpu <= whole_gpu
    assert whole_gpu & instance_fields >= instance


@pytest.mark.slow
async def test_unselected_gpus_are_not_read(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(4))
    async with running(ctx, options(devices="g:2", slow=0.1)):
        await next_rounds(ctx, 2)
        fake_nvml.calls(reset=True)
        before = len(rounds(ctx))
        await next_rounds(ctx, 3)
        calls, done = fake_nvml.calls(), len(rounds(ctx)) - before
    assert calls["nvmlDeviceGetPowerUsage"] <= done + 1


async def test_g_lists_the_processes_of_instances_with_their_gpu(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    instances = slices(0, "3g.40gb", processes=[Proc(4711)])
    fake_nvml.set(Scenario(gpus=[h100(0, mig=instances)]))
    async with running(ctx, options(devices="g")):
        found = listed(await next_rounds(ctx), GPU[0])
    assert found is not None
    assert [process.pid for process in found.processes] == [4711]


@pytest.mark.slow
async def test_a_new_mig_partition_starts_and_ends_readings(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    whole = Scenario(gpus=[h100(0), h100(1)])
    partitioned = Scenario(gpus=[h100(0, mig=slices(0, "1g.10gb", "2g.20gb")), h100(1)])
    async with running(ctx, options(devices="f", slow=0.1)):
        fake_nvml.set(whole)
        assert devices_with_readings(await next_rounds(ctx)) == {GPU[0], GPU[1]}
        fake_nvml.set(partitioned)
        await next_rounds(ctx)
        assert devices_with_readings(await next_rounds(ctx)) == {mig(0, 7), mig(0, 8), *GPU[:2]}
        fake_nvml.set(whole)
        await next_rounds(ctx)
        assert devices_with_readings(await next_rounds(ctx)) == {GPU[0], GPU[1]}


async def test_hints_force_readings_of_selected_devices_only(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(devices="g:1", interval=60, slow=60)):
        await until(lambda: rounds(ctx))
        ctx.hint(GPU[0])
        ctx.hint(GPU[1])
        forced = await ctx.wait_for(SamplesTaken, 3)
    assert {uuid for samples in forced for uuid in devices_with_readings(samples)} == {GPU[1]}


async def test_an_xid_of_an_unselected_gpu_has_no_series(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(devices="g:1", slow=0.1)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceRegisterEvents", 0) >= 2)
        fake_nvml.push_xid(0, 79)
        fake_nvml.push_xid(1, 31)
        await until(lambda: values(rounds(ctx)[-1], GPU[1]).get("xid_errors{31}") == 1)
    assert {
        uuid for s in await ctx.wait_for(SamplesTaken) for uuid in devices_with_readings(s)
    } == {GPU[1]}


WRONG = [
    ("g:4", h100s(4), "devices: g:4: there is no GPU 4: the GPUs are 0-3"),
    ("i", h100s(4), "devices: i: i is for MIG instances, and no GPU has MIG mode on"),
    ("i:0", h100s(4), "devices: i:0: i is for MIG instances, and no GPU has MIG mode on"),
    ("i:0", mixed(), "devices: i:0: there is no MIG instance 0: the MIG instances are 7-9,21"),
    ("i:0", Scenario(gpus=[h100(0, mig=[])]), "there is no MIG instance 0: there are no MIG"),
]


@pytest.mark.parametrize(("text", "node", "reason"), WRONG)
async def test_selected_devices_that_do_not_exist_are_a_configuration_error(
    fake_nvml: FakeNvml, text: str, node: Scenario, reason: str
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(node)
    with pytest.raises(PermanentError) as raised:
        await NvmlSource(options(devices=text)).run(ctx)
    assert reason in str(raised.value)
    assert ctx.events == [], "no event that would make the error a temporary one"


@pytest.mark.slow
async def test_a_selected_gpu_that_is_lost_later_is_down_and_no_error(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(devices="g:1", slow=0.1))
    node = h100s(2)
    fake_nvml.set(node)
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == {GPU[1]: 1}
        fake_nvml.set(node.with_gpu(1, lost=True))
        assert ups(await next_rounds(ctx)) == {GPU[1]: 0}
        fake_nvml.set(node.without_gpu(1))
        assert ups(await next_rounds(ctx)) == {GPU[1]: 0}
    # The driver was reloaded, and the source restarted.
    async with running(ctx, source):
        assert ups(await next_rounds(ctx)) == {GPU[1]: 0}


@pytest.mark.slow
async def test_a_gpu_that_fails_to_open_is_no_configuration_error(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    node = mixed().with_gpu(1, errors={"nvmlDeviceGetUUID": 999})
    fake_nvml.set(node)
    async with running(ctx, options(devices="i:9", slow=0.1)):
        await ctx.wait_for(SamplesTaken, 2)
        fake_nvml.set(mixed())
        await until(
            lambda: (
                NUMBERED[9]
                in devices_with_readings([e for e in ctx.events if isinstance(e, SamplesTaken)][-1])
            )
        )


async def test_an_outage_is_reported_for_selected_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    source = NvmlSource(options(devices="g:0,2"))
    task = asyncio.create_task(source.run(ctx))
    await next_rounds(ctx)
    fake_nvml.set(h100s(3, errors={"*": 9}))
    with pytest.raises(TransientError):
        await task
    assert ups(rounds(ctx)[-1]) == {GPU[0]: 0, GPU[2]: 0}


@pytest.mark.slow
async def test_a_reload_while_a_selected_gpu_is_lost_is_no_error(fake_nvml: FakeNvml) -> None:
    """The selected devices existed before, so other options may change in a reload."""
    ctx = FakeSourceContext()
    node = h100s(2)
    fake_nvml.set(node)
    async with running(ctx, options(devices="g:0-1", slow=0.1)):
        assert ups(await next_rounds(ctx)) == {GPU[0]: 1, GPU[1]: 1}
        fake_nvml.set(node.without_gpu(1))
    async with running(ctx, options(devices="g:0-1", interval=0.2, slow=0.2)):
        assert ups(await next_rounds(ctx)) == {GPU[0]: 1, GPU[1]: 0}
    with pytest.raises(PermanentError):
        await NvmlSource(options(devices="g:1")).run(ctx)


@pytest.mark.slow
async def test_gpu_up_of_a_deselected_gpu_ends_after_an_outage(fake_nvml: FakeNvml) -> None:
    """Without an end, the 0 of the outage would stay valid after the reload that deselects it."""
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    source = NvmlSource(options(devices="g"))
    task = asyncio.create_task(source.run(ctx))
    await next_rounds(ctx)
    fake_nvml.set(h100s(2, errors={"*": 9}))
    with pytest.raises(TransientError):
        await task
    assert ups(rounds(ctx)[-1]) == {GPU[0]: 0, GPU[1]: 0}
    outage = len(rounds(ctx))
    fake_nvml.set(h100s(2))
    async with running(ctx, NvmlSource(options(devices="g:1"))):
        last = await next_rounds(ctx, 3)
    of_deselected = [r for s in rounds(ctx)[outage:] for r in s.readings if r.device == GPU[0]]
    assert [(r.field, r.good_for_ns) for r in of_deselected] == [("gpu_up", 3 * NS // 10)], "once"
    assert ups(last) == {GPU[1]: 1}
