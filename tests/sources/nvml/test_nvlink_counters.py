"""Counters of NVLink traffic and errors, and of PCIe traffic."""

import itertools
from typing import Any

import pytest

from pipeline.fields import FieldPlan, by_name, in_group
from pipeline.model import NS, Reading, SamplesTaken
from tests.fakes.nvml import (
    ALL_ONES_32,
    FakeNvml,
    Field,
    Gpm,
    Ramp,
    Scenario,
    a100,
    h100,
    linked,
)
from tests.sources.nvml.harness import (
    GPU,
    errors,
    next_rounds,
    options,
    rounds,
    running,
    values,
)
from tests.support.contexts import FakeSourceContext

LINKS = [name for name in in_group("links") if name != "nvlink_up"]
TOTAL = "nvlink_bandwidth_bytes_per_second"
KIB = 1024


def of(ctx: FakeSourceContext, *names: str) -> list[Reading]:
    return [
        reading
        for event in ctx.events
        if isinstance(event, SamplesTaken)
        for reading in event.readings
        if reading.field in names
    ]


async def watch(
    fake: FakeNvml, ctx: FakeSourceContext, *names: str, count: int = 4, **changes: Any
) -> SamplesTaken:
    """Return round number `count` of one H100 with these fields. Each round is a slow one."""
    ctx.plan = FieldPlan([*names, "gpu_up"])
    fake.set(Scenario(gpus=[h100(**changes)]))
    fake.calls(reset=True)
    async with running(ctx, options(interval=0.2, slow=0.2, processes=False)):
        return await next_rounds(ctx, count)


@pytest.mark.slow
async def test_a_rate_is_computed_from_two_readings(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ramps = linked(sent=Ramp(10**9, 3e6), received=Ramp(10**9, 1e6))
    rate = "nvlink_7_bandwidth_bytes_per_second"
    await watch(fake_nvml, ctx, TOTAL, rate, **ramps)
    for name, links in ((rate, 1), (TOTAL, 18)):
        readings = of(ctx, name)
        assert readings, "not in the first round"
        assert len(readings) < len(rounds(ctx))
        for reading in readings:
            assert reading.value == pytest.approx(4e6 * KIB * links, rel=0.2)
        for earlier, later in itertools.pairwise(readings):
            assert later.window_start == earlier.at


def test_dcgm_s_unit_is_a_thousand_kibibytes_per_second() -> None:
    for name in (TOTAL, "nvlink_3_bandwidth_bytes_per_second"):
        field = by_name(name)
        assert field is not None
        assert 5_000_000 * KIB / field.dcgm_divisor == 5_000


@pytest.mark.slow
async def test_a_counter_that_decreased_has_no_rate(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([TOTAL, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100(**linked(sent=9000, received=9000))]))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        assert values(await next_rounds(ctx), GPU[0])[TOTAL] == 0
        fake_nvml.set(Scenario(gpus=[h100(**linked(sent=10, received=20))]))
        await next_rounds(ctx)
        assert values(await next_rounds(ctx), GPU[0])[TOTAL] == 0
    assert {reading.value for reading in of(ctx, TOTAL)} == {0}


@pytest.mark.slow
async def test_a_failing_link_does_not_affect_the_others(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    extra = linked(links=4)
    fields = {**extra["fields"], (138, 2): Field(error=999)}
    found = values(await watch(fake_nvml, ctx, *LINKS, **{**extra, "fields": fields}), GPU[0])
    assert {name for name in found if name.startswith("nvlink_bytes")} == {
        f"nvlink_bytes{{{direction},{link}}}"
        for direction in ("transmitted", "received")
        for link in range(4)
    } - {"nvlink_bytes{transmitted,2}"}
    assert "nvlink_1_bandwidth_bytes_per_second" in found
    assert "nvlink_2_bandwidth_bytes_per_second" not in found, (
        "one direction is not enough for a rate"
    )
    assert set(errors(ctx)) == {(GPU[0], "unknown")}


@pytest.mark.slow
@pytest.mark.parametrize("value", [1 << 60, (1 << 64) - 1])
async def test_impossible_byte_counts_are_dropped(fake_nvml: FakeNvml, value: int) -> None:
    ctx = FakeSourceContext()
    extra = linked(links=1)
    fields = {**extra["fields"], (139, ALL_ONES_32): Field(value, "ull")}
    names = (TOTAL, "nvlink_transmitted_bytes", "nvlink_received_bytes")
    found = values(await watch(fake_nvml, ctx, *names, **{**extra, "fields": fields}), GPU[0])
    assert set(found) == {"gpu_up", "nvlink_transmitted_bytes"}
    means_unknown = value == (1 << 64) - 1
    assert set(errors(ctx)) == (set() if means_unknown else {(GPU[0], "out_of_range")})


@pytest.mark.slow
async def test_a_card_without_links_has_no_link_readings(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    found = values(await watch(fake_nvml, ctx, *in_group("links"), TOTAL), GPU[0])
    assert found == {"gpu_up": 1}
    assert errors(ctx) == {}


ERRORS = [name for name in LINKS if name.endswith("_errors")]


async def test_before_hopper_error_counters_are_totals_of_all_links(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*ERRORS, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[a100(**linked(links=12, old=True))]))
    fake_nvml.calls(reset=True)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        found = values(await next_rounds(ctx), GPU[0])
    assert {name: found[name] for name in ERRORS} == dict(
        zip(ERRORS, (38, 45, 52, 59), strict=True)
    )
    assert "nvmlDeviceGetNvLinkErrorCounter" not in fake_nvml.calls()


@pytest.mark.slow
async def test_on_hopper_error_counters_have_other_field_numbers(fake_nvml: FakeNvml) -> None:
    found = values(await watch(fake_nvml, FakeSourceContext(), *ERRORS, **linked(links=3)), GPU[0])
    assert {name: found.get(name) for name in ERRORS} == {
        "nvlink_replay_errors": 161,
        "nvlink_recovery_errors": 162,
        "nvlink_crc_flit_errors": 163,
        "nvlink_crc_data_errors": None,
    }
    assert "nvmlDeviceGetNvLinkErrorCounter" not in fake_nvml.calls()


@pytest.mark.slow
async def test_a_failed_error_counter_does_not_affect_the_others(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    extra = linked(links=3)
    fields = {**extra["fields"], (161, ALL_ONES_32): Field(error=999)}
    found = values(await watch(fake_nvml, ctx, *ERRORS, **{**extra, "fields": fields}), GPU[0])
    assert set(found) == {"gpu_up", "nvlink_recovery_errors", "nvlink_crc_flit_errors"}
    assert set(errors(ctx)) == {(GPU[0], "unknown")}


@pytest.mark.slow
async def test_nvlink_up_follows_the_state_of_each_link(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["nvlink_up", "gpu_up"])
    states = []
    async with running(ctx, options(interval=0.1, slow=0.1)):
        for down in (None, 1, None):
            fake_nvml.set(Scenario(gpus=[h100(**linked(links=3, down=down))]))
            found = values(await next_rounds(ctx, 12), GPU[0])

            states.append([found.get(f"nvlink_up{{{link}}}") for link in range(3)])
    assert states == [[1, 1, 1], [1, 0, 1], [1, 1, 1]]


PCIE = ("pcie_transmitted_bytes", "pcie_received_bytes")


@pytest.mark.slow
async def test_pcie_bytes_are_the_rates_summed_over_time(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    gpm = {20: Gpm(3.0), 21: Gpm(50_000.0)}
    await watch(fake_nvml, ctx, *PCIE, count=5, gpm=gpm)
    for name, rate in zip(PCIE, (3, 50_000), strict=True):
        readings = of(ctx, name)
        assert readings[0].value == 0, "counted from the first reading on"
        elapsed = (readings[-1].at.mono_ns - readings[0].at.mono_ns) / NS
        assert readings[-1].value == pytest.approx(rate * (1 << 20) * elapsed, rel=0.1)
        assert [r.value for r in readings] == sorted(r.value for r in readings)
    assert "nvmlDeviceGetPcieThroughput" not in fake_nvml.calls()


@pytest.mark.slow
async def test_a_card_without_gpm_has_no_pcie_bytes(fake_nvml: FakeNvml) -> None:
    found = values(
        await watch(fake_nvml, FakeSourceContext(), *PCIE, values={"gpm_supported": 0}), GPU[0]
    )
    assert found == {"gpu_up": 1}


@pytest.mark.slow
async def test_pcie_bytes_do_not_grow_while_a_gpu_is_lost(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*PCIE, "gpu_up"])
    node = Scenario(gpus=[h100(gpm={21: Gpm(1000.0)})])
    async with running(ctx, options(interval=0.2, slow=0.2)):
        fake_nvml.set(node)
        await next_rounds(ctx, 3)
        fake_nvml.set(node.with_gpu(0, lost=True))
        await next_rounds(ctx, 5)
        fake_nvml.set(node)
        await next_rounds(ctx, 3)
    readings = of(ctx, PCIE[1])
    seen_s = len(readings) * 0.2
    assert 0 < readings[-1].value <= 1000 * (1 << 20) * (seen_s + 0.1)
    assert [r.value for r in readings] == sorted(r.value for r in readings), (
        "it continues from there"
    )


@pytest.mark.slow
async def test_pcie_bytes_continue_after_reloads_of_podgpu_and_the_driver(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(Scenario(gpus=[h100(gpm={20: Gpm(7.0), 21: Gpm(1000.0)})]))
    for names, interval in ((PCIE, 0.2), (PCIE, 0.25), (PCIE[1:], 0.2), (PCIE, 0.2)):
        ctx.plan = FieldPlan([*names, "gpu_up"])
        async with running(ctx, options(interval=interval, slow=interval)):
            await next_rounds(ctx, 3)
        ctx.restart_state["NvmlState"].nvml.invalidate()  # type: ignore[attr-defined]
    for name in PCIE:
        totals = [r.value for r in of(ctx, name)]
        assert totals == sorted(totals)
        assert totals.count(0) == 1, "it starts at 0 only once"
