"""MIG instances: discovery, readings, and new partitions."""

from dataclasses import replace

import pytest

from pipeline.model import DevicesDiscovered, MigPlace, SamplesTaken
from sources.nvml import codes
from tests.fakes.nvml import FakeNvml, Mig, Proc, Scenario, h100, mig_node, mixed, slices
from tests.sources.nvml.harness import (
    GPU,
    errors,
    fields,
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

MEMORY = {"memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"}


def partitioned(*names: str, place: int = 0, **changes: object) -> Scenario:
    return Scenario(gpus=[h100(place, mig=slices(place, *names, **changes)), h100(place + 1)])


async def test_instances_are_reported_with_their_mig_placement(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await next_rounds(ctx)
    found = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices
    assert [d.uuid for d in found] == [
        GPU[0],
        GPU[1],
        mig(1, 7),
        mig(1, 8),
        mig(1, 9),
        GPU[2],
        GPU[3],
        mig(3, 7),
    ]
    instance = found[3]
    assert instance.mig is not None
    assert instance.mig == MigPlace(GPU[1], 8, 0, "2g.20gb", index=1, start=instance.mig.start)
    assert (instance.index, instance.minor) == (1, 2)
    assert instance.pci_bus_id == found[1].pci_bus_id
    assert instance.model == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("refusal", [None, codes.NO_PERMISSION, codes.NOT_SUPPORTED])
async def test_t16_an_instance_has_its_first_memory_slice_if_it_is_reported(
    fake_nvml: FakeNvml, refusal: int | None
) -> None:
    ctx = FakeSourceContext()
    errors = {} if refusal is None else {"nvmlDeviceGetGpuInstanceById": refusal}
    instance = Mig(gi=1, profile="3g.40gb", uuid=mig(0, 1), placement_start=4)
    fake_nvml.set(Scenario(gpus=[h100(mig=[instance], errors=errors)]))
    async with running(ctx):
        await next_rounds(ctx)
    found = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices[1].mig
    assert found is not None
    assert found.start == (4 if refusal is None else None)
    assert found.placement == ("" if refusal else f"MIG-{GPU[0]}/3g.40gb@4")


async def test_an_instance_has_memory_and_processes_and_no_gpu_up(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(partitioned("3g.40gb", "3g.40gb", processes=[Proc(5, 1 << 30)]))
    async with running(ctx):
        samples = await next_rounds(ctx)
    for gi in (7, 8):
        assert fields(samples, mig(0, gi)) == MEMORY | {"processes"}
        found_values = values(samples, mig(0, gi))
        assert found_values["memory_used_bytes"] == 1 << 30
        assert found_values["memory_total_bytes"] == 40448 << 20
        found = listed(samples, mig(0, gi))
        assert found is not None
        assert [(p.pid, p.memory_bytes) for p in found.processes] == [(5, 1 << 30)]
    assert set(ups(samples)) == set(GPU[:2])


async def test_a_gpu_with_mig_has_no_utilization(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(partitioned("7g.80gb"))
    async with running(ctx):
        samples = await next_rounds(ctx)
    missing = fields(samples, GPU[1]) - fields(samples, GPU[0])
    assert missing == {
        "gpu_utilization_percent",
        "memory_copy_utilization_percent",
        "encoder_utilization_percent",
        "decoder_utilization_percent",
    }
    assert "power_watts" in fields(samples, GPU[0])
    assert errors(ctx) == {}


@pytest.mark.slow
async def test_a_new_partition_is_discovered_in_the_next_round(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    seven = ["1g.10gb"] * 7
    fake_nvml.set(partitioned(*seven))
    async with running(ctx):
        await next_rounds(ctx)
        for names in ([], ["2g.20gb", "2g.20gb", "2g.20gb"], ["1g.10gb"], seven):
            fake_nvml.set(partitioned(*names))
            samples = await next_rounds(ctx)
            instances = [mig(0, 7 + at) for at in range(len(names))]
            assert inventories(ctx)[-1] == [GPU[0], *instances, GPU[1]]
            assert {r.device for r in samples.readings} == {*GPU[:2], *instances}
            assert all(fields(samples, uuid) >= MEMORY for uuid in instances)
            assert ups(samples) == dict.fromkeys(GPU[:2], 1)
    assert errors(ctx) == {}, "no call uses a stale handle"
    for at, event in enumerate(ctx.events):
        if isinstance(event, DevicesDiscovered):
            known = {device.uuid for device in event.devices}
            later = ctx.events[at + 1 :]
            after = next((e for e in rounds(ctx) if e in later), None)
            assert after is None or {r.device for r in after.readings} <= known


@pytest.mark.slow
async def test_the_same_uuid_at_another_placement_is_another_instance(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    first = Mig(gi=7, profile="3g.40gb", uuid=mig(0, 7))
    fake_nvml.set(Scenario(gpus=[h100(mig=[first])]))
    async with running(ctx):
        await next_rounds(ctx)
        moved = replace(first, gi=9, ci=1, profile="1g.10gb")
        fake_nvml.set(Scenario(gpus=[h100(mig=[moved])]))
        samples = await next_rounds(ctx)
    places = [event.devices[1].mig for event in ctx.events if isinstance(event, DevicesDiscovered)]
    assert places == [
        MigPlace(GPU[0], 7, 0, "3g.40gb", index=0, start=0),
        MigPlace(GPU[0], 9, 1, "1g.10gb", index=0, start=0),
    ]
    assert values(samples, mig(0, 7))["memory_total_bytes"] == 9856 << 20


@pytest.mark.parametrize("code", [999, 15, 2, 6])
async def test_a_failing_instance_does_not_affect_the_others(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx = FakeSourceContext()
    seven = slices(0, *["1g.10gb"] * 7)
    seven[3] = replace(
        seven[3],
        errors={"nvmlDeviceGetMemoryInfo_v2": code, "nvmlDeviceGetMemoryInfo": code},
    )
    fake_nvml.set(Scenario(gpus=[h100(mig=seven)]))
    async with running(ctx):
        samples = await next_rounds(ctx)
    for at in (0, 1, 2, 4, 5, 6):
        assert fields(samples, mig(0, 7 + at)) >= MEMORY
    assert not MEMORY & fields(samples, mig(0, 10))
    assert ups(samples) == {GPU[0]: 1}
    assert len(inventories(ctx)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId"])
async def test_an_instance_whose_ids_fail_stays_in_the_inventory(
    fake_nvml: FakeNvml, call: str
) -> None:
    ctx = FakeSourceContext()
    three = slices(0, "1g.10gb", "1g.10gb", "1g.10gb")
    fake_nvml.set(Scenario(gpus=[h100(mig=three)]))
    async with running(ctx):
        await next_rounds(ctx)
        failing = [three[0], replace(three[1], errors={call: 999}), three[2]]
        fake_nvml.set(Scenario(gpus=[h100(mig=failing)]))
        samples = await next_rounds(ctx)
        assert fields(samples, mig(0, 8)) == set()
        assert fields(samples, mig(0, 9)) >= MEMORY
        fake_nvml.set(Scenario(gpus=[h100(mig=three)]))
        assert fields(await next_rounds(ctx), mig(0, 8)) >= MEMORY
    assert len(inventories(ctx)) == 1
    assert errors(ctx)[GPU[0], "unknown"] >= 1


@pytest.mark.slow
async def test_a_lost_parent_keeps_its_instances_in_the_inventory(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(partitioned("3g.40gb", "3g.40gb"))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(partitioned("3g.40gb", "3g.40gb").with_gpu(0, lost=True))
        samples = await next_rounds(ctx, 4)
        assert ups(samples) == {GPU[0]: 0, GPU[1]: 1}
        assert fields(samples, mig(0, 7)) == set()
    assert len(inventories(ctx)) == 1


@pytest.mark.slow
async def test_a_change_of_mig_mode_is_seen_in_a_slow_round(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    whole = Scenario(gpus=[h100(0), h100(1)])
    fake_nvml.set(whole)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx)
        fake_nvml.set(partitioned("4g.40gb"))
        samples = await next_rounds(ctx)
        assert inventories(ctx)[-1] == [GPU[0], mig(0, 7), GPU[1]]
        assert "gpu_utilization_percent" not in fields(samples, GPU[0])
        ctx.hint(mig(0, 7))
        await next_rounds(ctx)
        fake_nvml.set(whole)
        samples = await next_rounds(ctx)
        assert inventories(ctx)[-1] == GPU[:2]
        assert "gpu_utilization_percent" in fields(samples, GPU[0])
        before = len(ctx.events)
        ctx.hint(GPU[0])
        await next_rounds(ctx)
        forced = [
            e for e in ctx.events[before:] if isinstance(e, SamplesTaken) and e not in rounds(ctx)
        ]
        assert len(forced) == 1
        assert "gpu_utilization_percent" in fields(forced[0], GPU[0])


@pytest.mark.parametrize(
    ("profile", "from_size"),
    [
        ("1g.10gb", "1g.10gb"),
        ("2g.20gb", "2g.20gb"),
        ("3g.40gb", "3g.40gb"),
        ("7g.80gb", "7g.80gb"),
        ("1c.3g.40gb", "1c.3g.40gb"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_the_profile_is_read_from_the_name_or_else_from_the_size(
    fake_nvml: FakeNvml, profile: str, from_size: str, named: bool
) -> None:
    ctx = FakeSourceContext()
    changes = {} if named else {"name": None}
    fake_nvml.set(Scenario(gpus=[h100(0, mig=slices(0, profile), **changes)]))
    async with running(ctx):
        await next_rounds(ctx, 1)
    place = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices[1].mig
    assert place is not None
    assert place.profile == (profile if named else from_size)


@pytest.mark.slow
async def test_instances_are_found_after_a_failed_maximum_count(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    node = partitioned("7g.80gb")
    fake_nvml.set(node.with_gpu(0, errors={"nvmlDeviceGetMaxMigDeviceCount": 999}))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(node)
        await next_rounds(ctx)
    assert inventories(ctx) == [GPU[:2], [GPU[0], mig(0, 7), GPU[1]]]


@pytest.mark.slow
async def test_errors_of_instances_are_counted_for_their_gpu(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fails = {"nvmlDeviceGetMemoryInfo_v2": 999, "nvmlDeviceGetMemoryInfo": 999}
    async with running(ctx):
        for turn in range(6):
            instances = slices(0, "3g.40gb", "3g.40gb", errors=fails)
            fresh = [replace(m, uuid=f"{m.uuid[:-2]}{turn:02}") for m in instances]
            fresh[1] = replace(fresh[1], errors={"nvmlDeviceGetGpuInstanceId": 999})
            fake_nvml.set(Scenario(gpus=[h100(0, mig=fresh), h100(1)]))
            await next_rounds(ctx)
    assert {device for device, _ in errors(ctx)} == {GPU[0]}


async def pids(fake: FakeNvml, scenario: Scenario) -> tuple[SamplesTaken, dict[str, list[int]]]:
    """Return a round, and the pids on each device."""
    ctx = FakeSourceContext()
    fake.set(scenario)
    async with running(ctx):
        samples = await next_rounds(ctx)
    return samples, {p.device: [q.pid for q in p.processes] for p in samples.processes}


async def test_a_process_on_an_instance_is_not_listed_with_its_gpu_too(fake_nvml: FakeNvml) -> None:
    first, second = slices(0, "3g.40gb", "3g.40gb")
    first = replace(first, processes=[Proc(5, 1 << 30), Proc(6, 1 << 20, "graphics")])
    second = replace(second, processes=[Proc(5, 1 << 29), Proc(7, 1 << 28)])
    # A process on the GPU itself, and one that is on an instance in another list.
    own = [Proc(9, 1 << 27), Proc(7, 1 << 26, "graphics")]
    gpu = h100(0, mig=[first, second], processes=own)
    samples, found = await pids(fake_nvml, Scenario(gpus=[gpu, h100(1, processes=[Proc(5)])]))
    assert found == {GPU[0]: [7, 9], mig(0, 7): [5, 6], mig(0, 8): [5, 7], GPU[1]: [5]}
    kinds = ("compute", "graphics", "mps")
    counts = {
        uuid: [values(samples, uuid)[f"processes{{{kind}}}"] for kind in kinds] for uuid in found
    }
    assert counts == {
        GPU[0]: [1, 1, 0],
        mig(0, 7): [1, 1, 0],
        mig(0, 8): [2, 0, 0],
        GPU[1]: [1, 0, 0],
    }


async def test_a_process_of_an_unreadable_instance_is_listed_on_the_gpu(
    fake_nvml: FakeNvml,
) -> None:
    failing = slices(0, "3g.40gb", processes=[Proc(5)], errors={"nvmlDeviceGetUUID": 4})
    _, found = await pids(fake_nvml, Scenario(gpus=[h100(0, mig=failing)]))
    assert found == {GPU[0]: [5]}


@pytest.mark.slow
async def test_processes_that_move_between_instance_and_gpu_are_followed(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        for on_gpu, on_instance in (([5], []), ([], [5]), ([5], [6]), ([], []), ([6], [5])):
            instance = slices(0, "3g.40gb", processes=[Proc(pid) for pid in on_instance])
            gpu = h100(0, mig=instance, processes=[Proc(pid) for pid in on_gpu])
            fake_nvml.set(Scenario(gpus=[gpu]))
            # MIG mode is read in slow rounds only.
            await next_rounds(ctx, 3)
            samples = rounds(ctx)[-1]
            for uuid, expected in ((GPU[0], on_gpu), (mig(0, 7), on_instance)):
                found = listed(samples, uuid)
                assert found is not None
                assert [p.pid for p in found.processes] == expected
                assert values(samples, uuid)["processes{compute}"] == len(expected)


@pytest.mark.slow
async def test_fifty_six_instances_are_read(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mig_node())
    async with running(ctx):
        samples = await next_rounds(ctx)
        await until(lambda: inventories(ctx))
    assert len(inventories(ctx)[0]) == 64
    instances = {uuid for uuid in inventories(ctx)[0] if uuid.startswith("MIG-")}
    assert all(fields(samples, uuid) >= MEMORY for uuid in instances)
    assert errors(ctx) == {}
