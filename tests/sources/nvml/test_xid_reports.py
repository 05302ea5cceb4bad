"""XID errors as they are reported to the join: where they struck, and how many of them."""

import asyncio

import pytest

from pipeline.component.xid_rate_limit import ERRORS_PER_SECOND
from pipeline.fields import FieldPlan
from pipeline.model import DevicesDiscovered, Event, Instant, XidReport, XidsReported
from sources.nvml.xid_reports import XidReports
from sources.nvml.xid_watch import XidEvent
from tests.fakes.nvml import FakeNvml, Mig, h100s, mixed
from tests.sources.nvml.harness import GPU, mig, options, rounds, running, until, values
from tests.support.contexts import FakeSourceContext


def reports(ctx: FakeSourceContext) -> list[XidReport]:
    return [r for e in ctx.events if isinstance(e, XidsReported) for r in e.reports]


async def watched(fake: FakeNvml, gpus: int) -> None:
    await until(lambda: fake.calls().get("nvmlDeviceRegisterEvents", 0) >= gpus)


def dropped(ctx: FakeSourceContext) -> float:
    [value] = [
        point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == "podgpu_source_dropped_total"
        for point in points
        if ("reason", "xids") in point.labels
    ]
    return value


async def test_each_error_is_reported_at_once_behind_its_device(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(interval=60, slow=60)):
        await watched(fake_nvml, 2)
        began = ctx.clock.now()
        for code in (31, 31, 79):
            fake_nvml.push_xid(1, code)
        await until(lambda: len(reports(ctx)) == 3)
        assert dropped(ctx) == 0
    assert [(one.device, one.pci_bus_id, one.code) for one in reports(ctx)] == [
        (GPU[1], "", 31),
        (GPU[1], "", 31),
        (GPU[1], "", 79),
    ]
    for one in reports(ctx):
        assert (one.pid, one.process, one.owner) == (None, "", None)
        assert began <= one.at <= ctx.clock.now()
    kinds = [type(event) for event in ctx.events]
    assert kinds.index(DevicesDiscovered) < kinds.index(XidsReported)


async def test_one_that_a_stop_kept_from_being_reported_is_reported_by_the_next_run(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, reached = FakeSourceContext(), asyncio.Event()
    emit = ctx.emit

    async def full(event: Event) -> None:
        """As where the join's inbox has no room for a report."""
        if isinstance(event, XidsReported):
            reached.set()
            await asyncio.Event().wait()
        await emit(event)

    async with running(ctx, options(interval=60, slow=60)):
        await watched(fake_nvml, 1)
        monkeypatch.setattr(ctx, "emit", full)
        fake_nvml.push_xid(0, 31)
        async with asyncio.timeout(10):
            await reached.wait()
    monkeypatch.undo()
    assert reports(ctx) == []
    async with running(ctx, options(interval=60, slow=60)):
        await until(lambda: bool(reports(ctx)))
        fake_nvml.push_xid(0, 79)
        await until(lambda: len(reports(ctx)) > 1)
    assert [one.code for one in reports(ctx)] == [31, 79]


INSTANCES = {
    "an instance": (8, 0, mig(1, 8)),
    "an instance, and none within it": (8, None, mig(1, 8)),
    "one that isn't there": (3, 0, GPU[1]),
    "one within it that isn't there": (8, 5, GPU[1]),
    "none": (None, None, GPU[1]),
}


@pytest.mark.parametrize(("gi", "ci", "device"), INSTANCES.values(), ids=INSTANCES)
async def test_where_the_driver_names_an_instance_it_is_that_one_s(
    fake_nvml: FakeNvml, gi: int | None, ci: int | None, device: str
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await watched(fake_nvml, 4)
        fake_nvml.push_xid(1, 31, gi=gi, ci=ci)
        await until(lambda: [one.device for one in reports(ctx)] == [device])


async def test_of_a_gpu_instance_that_is_divided_it_is_the_gpu_s_unless_the_part_is_named(
    fake_nvml: FakeNvml,
) -> None:
    parts = [
        Mig(gi=7, ci=ci, profile="1c.3g.40gb", uuid=f"{mig(0, 7)[:-1]}{ci}", placement_start=0)
        for ci in range(2)
    ]
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, mig=parts))
    async with running(ctx):
        await watched(fake_nvml, 1)
        fake_nvml.push_xid(0, 31, gi=7)
        fake_nvml.push_xid(0, 31, gi=7, ci=1)
        await until(lambda: len(reports(ctx)) == 2)
    assert [one.device for one in reports(ctx)] == [GPU[0], parts[1].uuid]


async def test_instances_of_another_gpu_with_the_same_number_are_not_meant(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await watched(fake_nvml, 4)
        fake_nvml.push_xid(3, 31, gi=7, ci=0)
        await until(lambda: [one.device for one in reports(ctx)] == [mig(3, 7)])


async def test_a_driver_from_before_mig_names_no_instance() -> None:
    """Numbers that nobody has written are none: 0 would be an instance."""
    seen = XidEvent(GPU[1], 31, Instant(0, 0))
    waiting = XidReports()
    assert waiting.add(seen, ())
    assert [one.device for one in waiting.pending] == [GPU[1]]


async def test_of_a_storm_some_are_reported_and_all_are_counted(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx):
        await watched(fake_nvml, 2)
        for _ in range(200):
            fake_nvml.push_xid(0, 31)
        fake_nvml.push_xid(1, 31)
        await until(lambda: values(rounds(ctx)[-1], GPU[0]).get("xid_errors{31}") == 200, within=20)
        await until(lambda: reports(ctx)[-1].device == GPU[1])
        given_out = len([one for one in reports(ctx) if one.device == GPU[0]])
        assert ERRORS_PER_SECOND <= given_out < 200
        assert given_out + dropped(ctx) == 200


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.nvml.xid_reports._MAX_PENDING", 3)
    waiting = XidReports()
    given_out = [waiting.add(XidEvent("a", code, Instant(0, 0)), ()) for code in range(5)]
    assert given_out == [True, True, True, False, False]
    assert [one.code for one in waiting.pending] == [0, 1, 2]
    waiting.mark_reported(2)
    assert waiting.add(XidEvent("a", 9, Instant(0, 0)), ())
    assert [one.code for one in waiting.pending] == [2, 9]


@pytest.mark.parametrize("usage", [True, False])
async def test_accounts_know_of_them_though_no_field_reports(
    fake_nvml: FakeNvml, usage: bool
) -> None:
    """Without accounts and fields nobody asks, and nothing waits for them."""
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up"])
    async with running(ctx, options(usage=usage)):
        await until(lambda: len(rounds(ctx)) > 2)
        if usage:
            await watched(fake_nvml, 1)
            fake_nvml.push_xid(0, 31)
            await until(lambda: bool(reports(ctx)))
        assert bool(fake_nvml.calls().get("nvmlEventSetCreate")) is usage
        assert not any(r.field.startswith("xid") for e in rounds(ctx) for r in e.readings)


async def test_devices_that_are_not_read_are_reported_all_the_same(fake_nvml: FakeNvml) -> None:
    """Who holds them is known too."""
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(devices="g:0")):
        await watched(fake_nvml, 2)
        fake_nvml.push_xid(1, 79)
        await until(lambda: [one.device for one in reports(ctx)] == [GPU[1]])
