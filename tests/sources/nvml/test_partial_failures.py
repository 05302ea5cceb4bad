"""A failing field, GPU or MIG instance does not affect the others."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.base.errors import TransientError
from pipeline.model import NS, SamplesTaken
from sources.nvml.source import NvmlSource
from tests.fakes.nvml import FakeNvml, Scenario, h100s
from tests.sources.nvml.harness import (
    GPU,
    errors,
    fields,
    inventories,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

FIELDS_BY_CALL: list[tuple[str, set[str]]] = [
    ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
    ("nvmlDeviceGetTemperature", {"gpu_temperature_celsius"}),
    (
        "nvmlDeviceGetFieldValues",
        {"memory_temperature_celsius", "power_instant_watts", "recovery_action"},
    ),
    ("nvmlDeviceGetPowerUsage", {"power_watts"}),
    ("nvmlDeviceGetTotalEnergyConsumption", {"energy_millijoules"}),
    ("nvmlDeviceGetPcieReplayCounter", {"pcie_replays"}),
    (
        "nvmlDeviceGetUtilizationRates",
        {"gpu_utilization_percent", "memory_copy_utilization_percent"},
    ),
    ("nvmlDeviceGetEncoderUtilization", {"encoder_utilization_percent"}),
    ("nvmlDeviceGetDecoderUtilization", {"decoder_utilization_percent"}),
    ("nvmlDeviceGetPerformanceState", {"performance_state"}),
    (
        "nvmlDeviceGetCurrentClocksEventReasons",
        {"clock_throttle_reasons", "clock_throttle_active"},
    ),
    (
        "nvmlDeviceGetMemoryInfo_v2",
        {"memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
    ),
    (
        "nvmlDeviceGetTotalEccErrors",
        {
            "ecc_corrected_volatile",
            "ecc_uncorrected_volatile",
            "ecc_corrected_aggregate",
            "ecc_uncorrected_aggregate",
        },
    ),
    (
        "nvmlDeviceGetRemappedRows",
        {
            "remapped_rows_correctable",
            "remapped_rows_uncorrectable",
            "row_remap_pending",
            "row_remap_failed",
        },
    ),
]


async def one_round(fake: FakeNvml, ctx: FakeSourceContext) -> SamplesTaken:
    async with running(ctx, options(interval=30, slow=60)):
        await until(lambda: rounds(ctx))
    return rounds(ctx)[0]


# Each call with an error that is counted, and with one of the other codes in turn.
FAILURES = [
    (call, missing, code)
    for number, (call, missing) in enumerate(FIELDS_BY_CALL)
    for code in (999, (10, 4, 2)[number % 3])
]


@pytest.mark.parametrize(("call", "missing", "code"), FAILURES)
async def test_a_failing_call_affects_its_own_fields_only(
    fake_nvml: FakeNvml, call: str, missing: set[str], code: int
) -> None:
    ctx = FakeSourceContext()
    scenario = h100s(2)
    fake_nvml.set(scenario.with_gpu(0, errors={call: code}))
    samples = await one_round(fake_nvml, ctx)
    assert fields(samples, GPU[1]) - fields(samples, GPU[0]) == missing
    assert ups(samples) == {GPU[0]: 1, GPU[1]: 1}
    counted = {999: "unknown", 10: "timeout"}.get(code)
    assert set(errors(ctx)) == ({(GPU[0], counted)} if counted else set())


@pytest.mark.slow
async def test_a_failed_field_is_read_again(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, errors={"nvmlDeviceGetPowerUsage": 999}))
    async with running(ctx):
        assert "power_watts" not in fields(await next_rounds(ctx), GPU[0])
        fake_nvml.set(h100s(1))
        assert "power_watts" in fields(await next_rounds(ctx), GPU[0])


@pytest.mark.slow
async def test_an_unsupported_field_is_tried_again_rarely(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.nvml.open_gpu._REVIVE_EVERY", 3)
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, errors={"nvmlDeviceGetPowerUsage": 3}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx)
        fake_nvml.calls(reset=True)
        await next_rounds(ctx, 6)
        assert 1 <= fake_nvml.calls()["nvmlDeviceGetPowerUsage"] <= 3
        fake_nvml.set(h100s(1))
        await until(lambda: "power_watts" in fields(rounds(ctx)[-1], GPU[0]))


EVERYTHING_FAILS: Mapping[str, int] = {
    "*": 999,
    "nvmlDeviceGetHandleByIndex_v2": 0,
    "nvmlDeviceGetUUID": 0,
}


async def test_a_gpu_on_which_everything_fails_is_down(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(1, errors=EVERYTHING_FAILS))
    samples = await one_round(fake_nvml, ctx)
    assert ups(samples) == {GPU[0]: 1, GPU[1]: 0}
    assert fields(samples, GPU[1]) == {"gpu_up"}
    assert (GPU[1], "unknown") in errors(ctx)
    assert inventories(ctx) == [[GPU[0], GPU[1]]]


@pytest.mark.slow
@pytest.mark.parametrize("code", [15, 16])
@pytest.mark.parametrize("call", ["*", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetPowerUsage"])
async def test_a_lost_gpu_is_down_until_it_recovers(
    fake_nvml: FakeNvml, code: int, call: str
) -> None:
    ctx = FakeSourceContext()
    healthy = h100s(3)
    fake_nvml.set(healthy)
    async with running(ctx, options(interval=0.1, slow=0.1)):
        all_fields = fields(await next_rounds(ctx), GPU[1])
        fake_nvml.set(healthy.with_gpu(1, errors={call: code}))
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert fields(samples, GPU[1]) == {"gpu_up"}
        assert fields(samples, GPU[0]) == fields(samples, GPU[2]) == all_fields
        assert not [p for p in samples.processes if p.device == GPU[1]]
        fake_nvml.set(healthy)
        samples = await next_rounds(ctx, 3)
        assert ups(samples) == dict.fromkeys(GPU[:3], 1)
        assert fields(samples, GPU[1]) == all_fields
    name = {15: "gpu_is_lost", 16: "reset_required"}[code]
    assert errors(ctx)[GPU[1], name] >= 1
    assert inventories(ctx) == [GPU[:3]], "a lost GPU stays in the inventory"


async def test_a_gpu_lost_at_the_start_is_known_by_its_uuid(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    lost = {"*": 15, "nvmlDeviceGetHandleByIndex_v2": 0, "nvmlDeviceGetUUID": 0}
    fake_nvml.set(h100s(2).with_gpu(0, errors=lost))
    async with running(ctx):
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[0]: 0, GPU[1]: 1}
        assert inventories(ctx)[0] == GPU[:2]
        fake_nvml.set(h100s(2))
        await until(lambda: ups(rounds(ctx)[-1])[GPU[0]] == 1)


async def test_a_gpu_that_cannot_be_opened_does_not_affect_the_others(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2).with_gpu(0, errors={"*": 15}))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        samples = await next_rounds(ctx)
        assert ups(samples) == {GPU[1]: 1}
        assert inventories(ctx) == [[GPU[1]]]
        fake_nvml.set(h100s(2))
        await until(lambda: inventories(ctx)[-1] == GPU[:2])


@pytest.mark.slow
async def test_a_gpu_that_vanishes_leaves_the_inventory_and_is_down(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(3))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(h100s(3).without_gpu(1))
        samples = await next_rounds(ctx)
        assert inventories(ctx)[-1] == [GPU[0], GPU[2]]
        assert ups(samples) == {GPU[0]: 1, GPU[1]: 0, GPU[2]: 1}
        assert fields(samples, GPU[1]) == {"gpu_up"}
        fake_nvml.set(h100s(3))
        samples = await next_rounds(ctx)
        assert inventories(ctx)[-1] == GPU[:3]
        assert ups(samples) == dict.fromkeys(GPU[:3], 1)


OTHER = "GPU-0badcafe-5eed-4a5e-9c0d-100000000099"

REPLACED: list[tuple[str, Scenario, dict[str, int]]] = [
    ("another card in the same slot", h100s(2).with_gpu(1, uuid=OTHER), {GPU[0]: 1, OTHER: 1}),
    (
        "another card in another slot",
        h100s(2).with_gpu(1, uuid=OTHER, bus_id="00000000:00:19.0"),
        {GPU[0]: 1, GPU[1]: 0, OTHER: 1},
    ),
    (
        "another card in the slot, under another index",
        replace(h100s(2), gpus=[replace(h100s(2).gpus[1], uuid=OTHER), h100s(1).gpus[0]]),
        {GPU[0]: 1, GPU[1]: 0, OTHER: 1},
    ),
    (
        "a card with an unknown slot",
        h100s(2).with_gpu(1, uuid=OTHER, errors={"nvmlDeviceGetPciInfo_v3": 3}),
        {GPU[0]: 1, GPU[1]: 0, OTHER: 1},
    ),
    (
        "two cards that swapped slots",
        replace(
            h100s(2),
            gpus=[
                replace(gpu, bus_id=other.bus_id)
                for gpu, other in zip(reversed(h100s(2).gpus), h100s(2).gpus, strict=True)
            ],
        ),
        {GPU[0]: 1, GPU[1]: 1},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("now", "expected"), [case[1:] for case in REPLACED])
@pytest.mark.parametrize("restarted", [True, False])
async def test_a_gpu_is_forgotten_only_if_another_has_its_slot(
    fake_nvml: FakeNvml, now: Scenario, expected: dict[str, int], restarted: bool
) -> None:
    ctx = FakeSourceContext()
    source = NvmlSource(options(interval=0.1, slow=0.1))
    fake_nvml.set(h100s(2))
    if restarted:
        task = asyncio.create_task(source.run(ctx))
        await next_rounds(ctx)
        fake_nvml.set(replace(h100s(2), errors={"*": 9}))
        with pytest.raises(TransientError):
            await task
        fake_nvml.set(now)
    async with running(ctx, source):
        if not restarted:
            await next_rounds(ctx)
            fake_nvml.set(h100s(2).with_gpu(0, lost=True).with_gpu(1, lost=True))
            await next_rounds(ctx)
            fake_nvml.set(now)
        await until(lambda: ups(rounds(ctx)[-1]) == expected)
        assert ups(await next_rounds(ctx)) == expected
    last = {
        r.device: (r.value, r.good_for_ns)
        for samples in rounds(ctx)
        for r in samples.readings
        if r.field == "gpu_up"
    }
    assert {good for _, good in last.values()} == {3 * NS // 10}, (
        "no gpu_up stays valid without end"
    )


@pytest.mark.slow
async def test_an_added_gpu_is_found(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(h100s(2))
        samples = await next_rounds(ctx)
        assert inventories(ctx) == [[GPU[0]], GPU[:2]]
        assert "power_watts" in fields(samples, GPU[1])


async def test_a_node_without_gpus_is_no_error(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(replace(h100s(1), gpus=[]))
    async with running(ctx) as task:
        await until(lambda: len(ctx.events) >= 3)
        assert not task.done()
    assert inventories(ctx) == [[]]


@pytest.mark.slow
async def test_a_failing_count_keeps_the_known_gpus(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(2))
    async with running(ctx):
        await next_rounds(ctx)
        fake_nvml.set(replace(h100s(2), errors={"nvmlDeviceGetCount_v2": 999}))
        samples = await next_rounds(ctx)
    assert ups(samples) == dict.fromkeys(GPU[:2], 1)
    assert values(samples, GPU[0])["power_watts"] > 0
    assert errors(ctx)["driver", "unknown"] >= 1
