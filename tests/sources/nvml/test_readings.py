"""Each reading has the driver's value in the unit of its field, or is left out."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.fields import CATALOGUE, FieldPlan, Tier
from pipeline.model import NS, DevicesDiscovered, GpuProcess, SamplesTaken
from tests.fakes.nvml import (
    ALL_ONES_32,
    ALL_ONES_64,
    NOTHING_SUPPORTED,
    FakeNvml,
    Field,
    Proc,
    Scenario,
    h100s,
    mixed,
)
from tests.sources.nvml.all_fields import (
    FIELDS,
    GPM,
    LINKED,
    READINGS,
    SAMPLED,
    SCENARIO_VALUES,
)
from tests.sources.nvml.harness import (
    GPU,
    errors,
    fields,
    good_for,
    inventories,
    listed,
    next_rounds,
    options,
    rounds,
    running,
    until,
    ups,
    values,
)
from tests.support.contexts import FakeSourceContext

PROCESSES = [
    Proc(4711, 1 << 30),
    Proc(4712, ALL_ONES_64),
    Proc(99, 1 << 20, "graphics"),
]


async def first_round(
    fake: FakeNvml, scenario: Scenario, ctx: FakeSourceContext | None = None
) -> SamplesTaken:
    fake.set(scenario)
    ctx = ctx or FakeSourceContext()
    async with running(ctx, options(interval=30, slow=60)):
        await until(lambda: rounds(ctx))
    return rounds(ctx)[0]


@pytest.mark.slow
async def test_each_reading_has_the_value_of_the_driver(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan.everything()
    fake_nvml.set(
        h100s(
            2,
            values={**LINKED["values"], **SCENARIO_VALUES},
            fields=FIELDS,
            processes=PROCESSES,
            gpm=GPM,
            sampled=SAMPLED,
            # Without this error, engines that an H100 does not have would be left out.
            errors={"nvmlDeviceGetGpuInstanceProfileInfo": 3},
        )
    )
    async with running(ctx, options(interval=0.2, slow=0.2)):
        await next_rounds(ctx, 4)
    everything = values(rounds(ctx)[-1], GPU[0])
    found = {name: everything[name] for name in everything if not name.startswith("xid_")}

    assert found.keys() == READINGS.keys()
    exact = {name: value for name, value in READINGS.items() if value is not None}
    assert {name: found[name] for name in exact} == pytest.approx(exact, rel=1e-9)


@pytest.mark.slow
async def test_attributes_are_sorted_by_name(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(mixed())
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await until(lambda: fake_nvml.calls().get("nvmlDeviceRegisterEvents", 0) >= 4)
        fake_nvml.push_xid(0, 79)
        await next_rounds(ctx, 3)
    readings = [r for e in ctx.events if isinstance(e, SamplesTaken) for r in e.readings]
    assert {r.field for r in readings if r.attrs} == {
        f.name for f in FieldPlan().fields if f.attrs
    } - {"process_memory_used_bytes"}
    for reading in readings:
        assert list(reading.attrs) == sorted(reading.attrs)


def test_the_expected_readings_cover_the_catalogue() -> None:
    read = {name.partition("{")[0] for name in READINGS}
    named = {field.name for field in CATALOGUE if field.tier is not Tier.EVENT}
    of_a_link = re.compile(r"nvlink_(\d+)_\w*(bandwidth_bytes_per_second|errors)")
    others = {name for name in named if (m := of_a_link.fullmatch(name)) and int(m[1]) >= 2}
    from_the_join = {"process_memory_used_bytes"}
    assert read == named - from_the_join - others, "the GPU of the table has two links"


async def test_processes_are_listed_with_pid_kind_and_memory(fake_nvml: FakeNvml) -> None:
    samples = await first_round(fake_nvml, h100s(1, processes=PROCESSES))
    found = listed(samples, GPU[0])
    assert found is not None
    assert found.processes == (
        GpuProcess(99, "graphics", 1 << 20),
        GpuProcess(4711, "compute", 1 << 30),
        GpuProcess(4712, "compute", None),
    )


async def test_a_device_without_processes_has_an_empty_list(fake_nvml: FakeNvml) -> None:
    found = listed(await first_round(fake_nvml, h100s(1)), GPU[0])
    assert found is not None
    assert found.processes == ()


async def test_three_hundred_processes_are_listed(fake_nvml: FakeNvml) -> None:
    processes = [Proc(pid, 1000 + pid) for pid in range(1, 301)]
    samples = await first_round(fake_nvml, h100s(1, processes=processes))
    found = listed(samples, GPU[0])
    assert found is not None
    assert [(p.pid, p.memory_bytes) for p in found.processes] == [
        (p.pid, p.memory) for p in processes
    ]
    assert values(samples, GPU[0])["processes{compute}"] == 300


@pytest.mark.slow
async def test_the_list_of_processes_follows_the_driver(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx):
        for processes in ([Proc(7, 70)], [Proc(7, 71)], [Proc(7, 71), Proc(8, 80)], []):
            fake_nvml.set(h100s(1, processes=processes))
            found = listed(await next_rounds(ctx), GPU[0])
            assert found is not None
            assert [(p.pid, p.memory_bytes) for p in found.processes] == [
                (p.pid, p.memory) for p in processes
            ]


async def test_processes_are_not_read_if_the_option_is_off(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(processes=False)):
        samples = await next_rounds(ctx)
    assert not samples.processes
    assert "processes" not in fields(samples, GPU[0])
    assert not [call for call in fake_nvml.calls() if "Processes" in call]


async def test_a_failed_process_list_makes_the_whole_list_unknown(fake_nvml: FakeNvml) -> None:
    scenario = h100s(1, errors={"nvmlDeviceGetGraphicsRunningProcesses_v3": 999})
    samples = await first_round(fake_nvml, scenario)
    assert listed(samples, GPU[0]) is None
    assert "processes{compute}" in values(samples, GPU[0])
    assert "processes{graphics}" not in values(samples, GPU[0])


async def test_an_unsupported_process_list_is_ignored(fake_nvml: FakeNvml) -> None:
    scenario = h100s(1, errors={"nvmlDeviceGetMPSComputeRunningProcesses_v3": 3})
    samples = await first_round(fake_nvml, scenario)
    assert listed(samples, GPU[0]) is not None
    assert "processes{mps}" not in values(samples, GPU[0])


UNKNOWN_VALUES: list[tuple[str, Mapping[str, object], set[str]]] = [
    ("uint", {"values": {"temperature": ALL_ONES_32}}, {"gpu_temperature_celsius"}),
    (
        "power",
        {"values": {"power_usage": ALL_ONES_32}},
        {"power_watts", "power_instant_watts"},
    ),
    ("ulonglong", {"values": {"energy": ALL_ONES_64}}, {"energy_millijoules"}),
    ("ecc", {"values": {"ecc_1_1": ALL_ONES_64}}, {"ecc_uncorrected_aggregate"}),
    ("unknown p-state", {"values": {"pstate": 32}}, {"performance_state"}),
    ("field value", {"fields": {82: Field(ALL_ONES_32)}}, {"memory_temperature_celsius"}),
    ("one value of two", {"fields": {186: Field(error=3)}}, {"power_instant_watts"}),
    ("field error", {"fields": {82: Field(error=3)}}, {"memory_temperature_celsius"}),
    ("clock", {"values": {"clock_1": ALL_ONES_32}}, {"sm_clock_mhz"}),
    (
        "one value of a call",
        {"values": {"util_memory": ALL_ONES_32}},
        {"memory_copy_utilization_percent"},
    ),
    (
        "mask",
        {"values": {"clocks_event_reasons": ALL_ONES_64}},
        {"clock_throttle_reasons", "clock_throttle_active"},
    ),
    (
        "a device without its own memory",
        {"errors": {"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetMemoryInfo_v2": 3}},
        {"memory_total_bytes", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
    ),
]


@pytest.mark.parametrize(("changes", "missing"), [c[1:] for c in UNKNOWN_VALUES])
async def test_values_that_mean_unknown_are_left_out_without_an_error(
    fake_nvml: FakeNvml, changes: dict[str, object], missing: set[str]
) -> None:
    ctx = FakeSourceContext()
    all_fields = fields(await first_round(fake_nvml, h100s(1)), GPU[0])
    samples = await first_round(fake_nvml, h100s(1, **changes), ctx)
    assert all_fields - fields(samples, GPU[0]) == missing
    assert ups(samples) == {GPU[0]: 1}
    assert errors(ctx) == {}


IMPOSSIBLE_VALUES: list[tuple[Mapping[str, object], str]] = [
    ({"values": {"util_gpu": 101}}, "gpu_utilization_percent"),
    ({"values": {"enc_util": 4000}}, "encoder_utilization_percent"),
    ({"values": {"temperature": 2**32 - 40}}, "gpu_temperature_celsius"),
    ({"values": {"temperature": 5000}}, "gpu_temperature_celsius"),
    ({"fields": {82: Field(-40, "int")}}, "memory_temperature_celsius"),
    ({"values": {"clock_1": 99_999}}, "sm_clock_mhz"),
    ({"values": {"pstate": 17}}, "performance_state"),
    ({"values": {"remapped_pending": 2}}, "row_remap_pending"),
]


@pytest.mark.parametrize(("changes", "field"), IMPOSSIBLE_VALUES)
async def test_an_impossible_value_is_dropped_and_counted(
    fake_nvml: FakeNvml, changes: dict[str, object], field: str
) -> None:
    ctx = FakeSourceContext()
    samples = await first_round(fake_nvml, h100s(1, **changes), ctx)
    assert field not in fields(samples, GPU[0])
    assert errors(ctx) == {(GPU[0], "out_of_range"): 1}
    assert ups(samples) == {GPU[0]: 1}


@pytest.mark.slow
async def test_unsupported_fields_have_no_readings_instead_of_zeros(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    fake_nvml.set(h100s(1, errors=NOTHING_SUPPORTED))
    async with running(ctx):
        samples = await next_rounds(ctx, 4)
    assert inventories(ctx) == [[GPU[0]]]
    assert values(samples, GPU[0]) == {"gpu_up": 1}
    assert samples.processes == ()
    assert errors(ctx) == {}


async def test_a_device_may_report_only_its_uuid(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    await first_round(fake_nvml, h100s(1, errors=NOTHING_SUPPORTED), ctx)
    device = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices[0]
    assert (device.index, device.minor, device.pci_bus_id, device.model) == (0, None, "", "")


async def test_minor_number_and_index_are_independent(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    scenario = h100s(4)
    gpus = [replace(gpu, minor=3 - place) for place, gpu in enumerate(scenario.gpus)]
    await first_round(fake_nvml, replace(scenario, gpus=gpus), ctx)
    found = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices
    assert [(d.uuid, d.index, d.minor) for d in found] == [
        (GPU[0], 0, 3),
        (GPU[1], 1, 2),
        (GPU[2], 2, 1),
        (GPU[3], 3, 0),
    ]
    assert found[2].pci_bus_id == "00000000:00:08.0"
    assert found[2].model == "NVIDIA H100 80GB HBM3"
    assert found[2].driver == "580.159.04"
    assert found[2].mig is None


async def test_only_supported_throttle_reasons_have_a_series(fake_nvml: FakeNvml) -> None:
    scenario = h100s(1, values={"supported_clocks_event_reasons": 0x5})
    found = values(await first_round(fake_nvml, scenario), GPU[0])
    assert [name for name in found if name.startswith("clock_throttle_active")] == [
        "clock_throttle_active{gpu_idle}",
        "clock_throttle_active{power_cap}",
    ]


async def test_a_driver_with_only_the_first_memory_call_is_read(fake_nvml: FakeNvml) -> None:
    found = values(
        await first_round(fake_nvml, h100s(1, errors={"nvmlDeviceGetMemoryInfo_v2": 13})), GPU[0]
    )
    assert found["memory_total_bytes"] == 85520809984
    assert "memory_used_bytes" in found
    assert "memory_free_bytes" in found
    assert "memory_reserved_bytes" not in found


@pytest.mark.parametrize(
    ("unsupported", "parts"),
    [
        pytest.param(
            {}, {"used": 0, "free": 80933, "reserved": 626}, id="reserved memory is separate"
        ),
        pytest.param(
            {"nvmlDeviceGetMemoryInfo_v2": 13},
            {"used": 626, "free": 80933},
            id="reserved memory is in used memory",
        ),
    ],
)
async def test_the_parts_of_memory_sum_to_the_total(
    fake_nvml: FakeNvml, unsupported: dict[str, int], parts: dict[str, int]
) -> None:
    mib = 1 << 20
    memory = {"memory_total": 81559 * mib, "memory_used": 626 * mib, "memory_reserved": 626 * mib}
    found = values(
        await first_round(fake_nvml, h100s(1, values=memory, errors=unsupported)), GPU[0]
    )
    found_parts = {name: found.get(f"memory_{name}_bytes") for name in ("used", "free", "reserved")}
    assert found_parts == {
        name: parts[name] * mib if name in parts else None for name in found_parts
    }
    assert sum(parts.values()) * mib == found["memory_total_bytes"]


async def test_only_fields_of_the_plan_are_read(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["power_watts", "clock_throttle_reasons", "memory_used_bytes"])
    fake_nvml.set(h100s(1))
    async with running(ctx, options(processes=False)):
        await until(lambda: len(ctx.events) > 3)
    samples = [e for e in ctx.events if isinstance(e, SamplesTaken)][-1]
    assert set(values(samples, GPU[0])) == {
        "power_watts",
        "clock_throttle_reasons",
        "memory_used_bytes",
    }
    calls = fake_nvml.calls()
    assert "nvmlDeviceGetTotalEnergyConsumption" not in calls
    assert "nvmlDeviceGetUtilizationRates" not in calls
    assert "nvmlEventSetCreate" not in calls


async def test_readings_are_valid_for_three_intervals_of_their_tier(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=0.1, slow=0.25)):
        await until(lambda: rounds(ctx))
    samples = rounds(ctx)[0]
    tiers = {tier: [f.name for f in CATALOGUE if f.tier is tier] for tier in Tier}
    assert good_for(samples, tiers[Tier.FAST]) == {3 * NS // 10}
    assert good_for(samples, tiers[Tier.SLOW]) == {3 * NS // 4}
    assert good_for(samples, ["gpu_up"]) == {3 * NS // 10}
    assert {p.good_for_ns for p in samples.processes} == {3 * NS // 10}


@pytest.mark.slow
async def test_the_slow_tier_is_read_first_and_then_each_slow_interval(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, options(interval=0.1, slow=0.3)):
        await until(lambda: len(rounds(ctx)) >= 7)
    slow = ["energy_millijoules" in fields(samples, GPU[0]) for samples in rounds(ctx)]
    at = [samples.readings[0].at.mono_ns / NS for samples in rounds(ctx)]
    assert slow[0]
    assert not slow[1]
    # The slow rounds are the first ones at or after each multiple of 0.3 s from the first round.
    turns = [(tick - at[0] + 0.05) // 0.3 for tick in at]
    assert slow[1:] == [now != before for before, now in itertools.pairwise(turns)]
