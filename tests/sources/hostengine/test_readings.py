"""Which fields of which devices are read, and which values become readings."""

import ctypes
import itertools

import pytest

from pipeline.model import NS, DevicesDiscovered, MigPlace, SamplesTaken
from sources.hostengine import structs
from tests.fakes.dcgm import Card, FakeDcgm, Scenario, Slice
from tests.fakes.dcgm.scenario import AMPERE, HOPPER
from tests.sources.hostengine.running import STANDARD, context, names, source, values
from tests.support.running import running

A, B = Card(0), Card(1)
VALUES = {1001: 0.5}
ONE_RATIO = {"graphics_engine_active_ratio": 0.5}


@pytest.mark.parametrize(
    ("name", "structure"),
    [
        ("connect", structs.ConnectParams),
        ("value", structs.FieldValue),
        ("hierarchy", structs.Hierarchy),
        ("entity", structs.Entity),
    ],
)
def test_structures_have_the_size_of_the_compiled_ones(
    fake_dcgm: FakeDcgm, name: str, structure: type[ctypes.Structure]
) -> None:
    assert ctypes.sizeof(structure) == fake_dcgm.size(name)


async def test_the_default_fields_are_read(fake_dcgm: FakeDcgm) -> None:
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken, 2)
    assert values(ctx, A.name) == STANDARD
    [found] = [event for event in ctx.events if isinstance(event, DevicesDiscovered)]
    [device] = found.devices
    assert (device.uuid, device.index, device.minor) == (A.name, 0, 0)
    assert (device.pci_bus_id, device.model) == ("00000000:01:00.0", "NVIDIA A100-SXM4-40GB")


async def test_the_engine_is_asked_to_read_at_the_interval(fake_dcgm: FakeDcgm) -> None:
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
    assert "watch every 100000" in fake_dcgm.calls()
    first = next(event for event in ctx.events if isinstance(event, SamplesTaken))
    assert {reading.good_for_ns for reading in first.readings} == {300_000_000}


async def test_only_fields_of_the_plan_are_watched(fake_dcgm: FakeDcgm) -> None:
    fake_dcgm.set(Scenario((Card(0, values={1001: 0.5, 1002: 0.75}),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
    assert values(ctx, A.name) == ONE_RATIO
    async with running(source(fake_dcgm), context("profiling")) as ctx:
        await ctx.wait_for(SamplesTaken)
    assert values(ctx, A.name) == {**ONE_RATIO, "sm_active_ratio": 0.75}


@pytest.mark.parametrize(
    ("capability", "fields", "read"),
    [
        pytest.param(AMPERE, "missing", True, id="before Hopper"),
        pytest.param(
            8 << 32 | 9, "missing", True, id="before Hopper, in the encoding of the headers"
        ),
        pytest.param(HOPPER, "missing", False, id="Hopper"),
        pytest.param(9 << 32, "missing", False, id="Hopper, in the encoding of the headers"),
        pytest.param(10 << 16 | 3, "missing", False, id="after Hopper"),
        pytest.param(HOPPER, "all", True, id="Hopper, with fields: all"),
        pytest.param((1 << 63) - 16, "missing", True, id="blank"),
    ],
)
async def test_cards_whose_fields_nvml_reads_are_skipped_by_default(
    fake_dcgm: FakeDcgm, capability: int, fields: str, read: bool
) -> None:
    fake_dcgm.set(Scenario((Card(0, capability, values=VALUES),)))
    async with running(source(fake_dcgm, fields=fields), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
    assert values(ctx, A.name) == (ONE_RATIO if read else {})
    assert names(ctx) == [A.name]


@pytest.mark.parametrize(
    "value",
    [
        *((1 << 63) - 16 + kind for kind in range(4)),
        *((1 << 31) - 16 + kind for kind in range(4)),
        *(float((1 << 47) + kind) for kind in range(4)),
        float("nan"),
        float("inf"),
        "<<<NOT_SUPPORTED>>>",
    ],
)
async def test_a_blank_value_is_dropped_and_counted(
    fake_dcgm: FakeDcgm, value: float | str
) -> None:
    fake_dcgm.set(Scenario((Card(0, values={**VALUES, 1009: value}),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken, 2)
    assert values(ctx, A.name) == ONE_RATIO
    assert dropped(ctx)["blank"] >= 1


async def test_an_impossible_value_is_dropped_and_counted(fake_dcgm: FakeDcgm) -> None:
    fake_dcgm.set(Scenario((Card(0, values={**VALUES, 1004: 17.0, 1009: -1}),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
    assert values(ctx, A.name) == ONE_RATIO
    assert dropped(ctx)["out_of_range"] == 2


async def test_a_value_with_an_unchanged_timestamp_is_reported_once(fake_dcgm: FakeDcgm) -> None:
    fake_dcgm.set(Scenario((Card(0, values=VALUES),), frozen=1_700_000_000_000_000))
    async with running(source(fake_dcgm), context()) as ctx:
        taken = await ctx.wait_for(SamplesTaken, 3)
    assert [len(round_.readings) for round_ in taken[:3]] == [1, 0, 0]


@pytest.mark.parametrize(("age", "expected"), [(0.1, 0.1), (0.25, 0.25), (-5, 0), (3600, 0)])
async def test_a_reading_has_the_age_that_the_engine_reports(
    fake_dcgm: FakeDcgm, age: float, expected: float
) -> None:
    """A timestamp that is in the future or too old is from another clock and not used."""
    ctx = context()
    stamp = ctx.clock.now().wall_ns - round(age * NS)
    fake_dcgm.set(Scenario((Card(0, values=VALUES),), frozen=stamp // 1000))
    async with running(source(fake_dcgm), ctx):
        [taken, *_] = await ctx.wait_for(SamplesTaken)
    [reading] = taken.readings
    now = ctx.clock.now()
    passed = (now.wall_ns - reading.at.wall_ns) / NS
    assert expected <= passed < expected + 5
    if expected:
        assert reading.at.wall_ns == pytest.approx(stamp, abs=1000)
    assert now.wall_ns - reading.at.wall_ns == pytest.approx(
        now.mono_ns - reading.at.mono_ns, abs=NS // 10
    )


async def test_an_instance_with_reused_ids_is_another_instance(fake_dcgm: FakeDcgm) -> None:
    three, four = (Slice(1, profile=profile) for profile in ("3g.20gb", "4g.20gb"))
    fake_dcgm.set(Scenario((Card(0, slices=(three,)),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
        fake_dcgm.set(Scenario((Card(0, slices=(four,)),)))
        await ctx.wait_for(DevicesDiscovered, 2)
    reported = [event.devices for event in ctx.events if isinstance(event, DevicesDiscovered)]
    assert [device.mig.profile for devices in reported for device in devices if device.mig] == [
        "3g.20gb",
        "4g.20gb",
    ]


@pytest.mark.slow
async def test_values_are_read_even_if_the_devices_change_all_the_time(
    fake_dcgm: FakeDcgm,
) -> None:
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
        for turn in range(1, 8):
            one = Slice(turn, values={1001: turn / 10})
            fake_dcgm.set(Scenario((Card(0, values=VALUES, slices=(one,)),)))
            await ctx.wait_for(DevicesDiscovered, turn + 1)
    kinds = [type(event) for event in ctx.events]
    assert kinds[:2] == [DevicesDiscovered, SamplesTaken]
    unread = [1 for one, two in itertools.pairwise(kinds) if one is two is DevicesDiscovered]
    assert not unread, "each discovery is followed by readings"


@pytest.mark.parametrize(
    ("cis", "name"),
    [((0,), "3/0"), ((2,), "3/2"), ((0, 1), "3"), ((), "3")],
)
async def test_an_instance_is_identified_by_its_mig_placement(
    fake_dcgm: FakeDcgm, cis: tuple[int, ...], name: str
) -> None:
    one = Slice(3, cis, "2g.10gb", {1001: 0.125})
    fake_dcgm.set(Scenario((Card(0, values=VALUES, slices=(one,)),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
    place = f"MIG-{A.name}/{name}"
    assert values(ctx, A.name) == ONE_RATIO
    assert values(ctx, place) == {"graphics_engine_active_ratio": 0.125}
    [found] = [event for event in ctx.events if isinstance(event, DevicesDiscovered)]
    ci = cis[0] if len(cis) == 1 else None
    assert found.devices[1].mig == MigPlace(A.name, 3, ci, "2g.10gb")


async def test_created_and_destroyed_instances_are_noticed(fake_dcgm: FakeDcgm) -> None:
    small, large = Slice(7, values={1001: 0.1}), Slice(1, values={1001: 0.2})
    fake_dcgm.set(Scenario((Card(0, slices=(small,)),)))
    async with running(source(fake_dcgm), context()) as ctx:
        await ctx.wait_for(SamplesTaken)
        fake_dcgm.set(Scenario((Card(0, slices=(large,)),)))
        await ctx.wait_for(DevicesDiscovered, 2)
        await ctx.wait_for(SamplesTaken, len(ctx.events))
    assert names(ctx) == [A.name, f"MIG-{A.name}/1/0"]
    assert values(ctx, f"MIG-{A.name}/1/0") == {"graphics_engine_active_ratio": 0.2}


class TestFaultsOfOneGpu:
    async def test_a_gpu_that_cannot_be_watched_does_not_affect_the_others(
        self, fake_dcgm: FakeDcgm, caplog: pytest.LogCaptureFixture
    ) -> None:
        cards = (Card(0, values=VALUES), Card(1, values=VALUES))
        fake_dcgm.set(Scenario(cards, unwatchable={0: -29}))
        async with running(source(fake_dcgm), context()) as ctx:
            await ctx.wait_for(SamplesTaken)
        assert (values(ctx, A.name), values(ctx, B.name)) == ({}, ONE_RATIO)
        assert f"cannot read {A.name}" in caplog.text
        assert "run the host engine as root" in caplog.text

    async def test_a_gpu_that_cannot_be_read_does_not_affect_the_others(
        self, fake_dcgm: FakeDcgm, caplog: pytest.LogCaptureFixture
    ) -> None:
        cards = (Card(0, values=VALUES), Card(1, values=VALUES))
        fake_dcgm.set(Scenario(cards, unreadable={(1, 0): -18}))
        async with running(source(fake_dcgm), context()) as ctx:
            await ctx.wait_for(SamplesTaken, 3)
        assert (values(ctx, A.name), values(ctx, B.name)) == ({}, ONE_RATIO)
        assert caplog.text.count(A.name) == 1

    async def test_a_gpu_without_a_uuid_is_ignored(self, fake_dcgm: FakeDcgm) -> None:
        unknown = Card(0, values={**VALUES, 54: "<<<NULL>>>"})
        fake_dcgm.set(Scenario((unknown, Card(1, values=VALUES))))
        async with running(source(fake_dcgm), context()) as ctx:
            await ctx.wait_for(SamplesTaken)
        assert names(ctx) == [B.name]


def dropped(ctx) -> dict[str, float]:  # type: ignore[no-untyped-def]
    return {
        dict(point.labels)["reason"]: point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_source_dropped_total"
        for point in points
    }
