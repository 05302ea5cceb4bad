"""XID errors that are reported to the join: their device and their number."""

import asyncio

import pytest

from pipeline.component.xid_rate_limit import ERRORS_PER_SECOND
from pipeline.fields import FieldPlan
from pipeline.model import DevicesDiscovered, Event, Instant, XidReport, XidsReported
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


async def test_each_error_is_reported_immediately_after_its_device(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(interval=60, slow=60)):
        await watched(fake_nvml, 2)
        started = ctx.clock.now()
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
        assert started <= one.at <= ctx.clock.now()
    kinds = [type(event) for event in ctx.events]
    assert kinds.index(DevicesDiscovered) < kinds.index(XidsReported)


@pytest.mark.slow
async def test_an_error_that_is_pending_at_a_stop_is_reported_by_the_next_run(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, reached = FakeSourceContext(), asyncio.Event()
    emit = ctx.emit

    async def full(event: Event) -> None:
        """Block for XID reports, as if the inbox of the join were full."""
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
    "GPU and compute instance": (8, 0, mig(1, 8)),
    "only the GPU instance": (8, None, mig(1, 8)),
    "an unknown GPU instance": (3, 0, GPU[1]),
    "an unknown compute instance": (8, 5, GPU[1]),
    "no instance": (None, None, GPU[1]),
}


@pytest.mark.parametrize(("gi", "ci", "device"), INSTANCES.values(), ids=INSTANCES)
async def test_an_error_belongs_to_the_instance_that_the_driver_names(
    fake_nvml: FakeNvml, gi: int | None, ci: int | None, device: str
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await watched(fake_nvml, 4)
        fake_nvml.push_xid(1, 31, gi=gi, ci=ci)
        await until(lambda: [one.device for one in reports(ctx)] == [device])


async def test_an_error_of_a_divided_gpu_instance_belongs_to_the_gpu(
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


async def test_instance_numbers_are_matched_within_the_gpu(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx):
        await watched(fake_nvml, 4)
        fake_nvml.push_xid(3, 31, gi=7, ci=0)
        await until(lambda: [one.device for one in reports(ctx)] == [mig(3, 7)])


async def test_an_event_without_instance_numbers_belongs_to_the_gpu() -> None:
    """A driver before MIG writes no numbers. They must not be read as instance 0."""
    assert XidEvent(GPU[1], 31, Instant(0, 0)).report(()).device == GPU[1]


async def test_a_storm_is_reported_in_part_and_counted_in_full(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx):
        await watched(fake_nvml, 2)
        for _ in range(200):
            fake_nvml.push_xid(0, 31)
        fake_nvml.push_xid(1, 31)
        await until(lambda: values(rounds(ctx)[-1], GPU[0]).get("xid_errors{31}") == 200, within=20)
        await until(lambda: reports(ctx)[-1].device == GPU[1])
        reported = len([one for one in reports(ctx) if one.device == GPU[0]])
        assert ERRORS_PER_SECOND <= reported < 200
        assert reported + dropped(ctx) == 200


@pytest.mark.slow
@pytest.mark.parametrize("usage", [True, False])
async def test_errors_are_reported_for_accounts_without_xid_fields(
    fake_nvml: FakeNvml, usage: bool
) -> None:
    """Without accounts and XID fields no event set is created."""
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


async def test_errors_of_unselected_gpus_are_reported(fake_nvml: FakeNvml) -> None:
    """Their holders are known too."""
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(devices="g:0")):
        await watched(fake_nvml, 2)
        fake_nvml.push_xid(1, 79)
        await until(lambda: [one.device for one in reports(ctx)] == [GPU[1]])
