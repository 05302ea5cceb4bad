"""The group `details`: values that mean unknown, cards that lack a reading, and DCGM's numbers."""

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.fields import FieldPlan, Tier, by_name, in_group
from pipeline.model import SamplesTaken
from sources.nvml import codes
from sources.nvml.device_readers import VALUES
from tests.fakes.nvml import (
    ALL_ONES_32,
    ALL_ONES_64,
    NOTHING_SUPPORTED,
    FakeNvml,
    Field,
    Gpu,
    Ramp,
    Scenario,
    h100,
    linked,
    mig_node,
    t4,
)
from tests.sources.nvml.harness import (
    GPU,
    errors,
    mig,
    next_rounds,
    options,
    running,
    until,
    values,
)
from tests.support.contexts import FakeSourceContext

DETAILS = in_group("details")


async def first_round(
    fake: FakeNvml, scenario: Scenario, *names: str, ctx: FakeSourceContext | None = None
) -> SamplesTaken:
    """Return the first round, which reads all tiers, of a node with these fields."""
    ctx = ctx or FakeSourceContext()
    ctx.plan = FieldPlan([*names, "gpu_up"])
    fake.set(scenario)
    fake.calls(reset=True)
    async with running(ctx, options(interval=30, slow=60, processes=False)):
        await until(lambda: [e for e in ctx.events if isinstance(e, SamplesTaken)])
    return next(e for e in ctx.events if isinstance(e, SamplesTaken))


async def read(
    fake: FakeNvml, gpu: Gpu, *names: str, ctx: FakeSourceContext | None = None
) -> dict[str, int | float]:
    """Return the readings of one GPU, without `gpu_up`."""
    found = values(await first_round(fake, Scenario(gpus=[gpu]), *names, ctx=ctx), gpu.uuid)
    del found["gpu_up"]
    return found


IN_A_VIRTUAL_MACHINE = {
    "platform_chassis": 0,
    "platform_slot": 0,
    "platform_tray": 0,
    "platform_host": 1,
    "platform_peer": 0,
    "platform_module": 4,
}
"""As an H200's driver reports it, where nvidia-smi shows only the module."""

CASES: list[tuple[str, str, Mapping[str, Any], float | None]] = [
    # what, field, changes of the card, value
    ("all processes", "compute_mode", {"values": {"compute_mode": 0}}, 0),
    ("no process", "compute_mode", {"values": {"compute_mode": 2}}, 1),
    ("one process", "compute_mode", {"values": {"compute_mode": 3}}, 2),
    ("a mode that DCGM does not know", "compute_mode", {"values": {"compute_mode": 1}}, None),
    ("MIG is off", "mig_mode", {}, 0),
    ("MIG is on", "mig_mode", {"mig": ()}, 1),
    ("no MIG", "mig_mode", {"values": {"mig_mode_current": None}}, 0),
    ("unknown MIG mode", "mig_mode", {"errors": {"nvmlDeviceGetMigMode": 4}}, None),
    ("valid inforom", "inforom_valid", {"values": {"inforom_valid": 1}}, 1),
    ("corrupted inforom", "inforom_valid", {"values": {"inforom_valid": 0}}, 0),
    ("no inforom", "inforom_valid", {}, None),
    ("slot 0", "platform_chassis_slot_number", {"values": {"platform_slot": 0}}, 0),
    ("unknown slot", "platform_chassis_slot_number", {"values": {"platform_slot": 255}}, None),
    ("no platform", "platform_host_id", {}, None),
    *(
        (f"{field} without a chassis", field, {"values": IN_A_VIRTUAL_MACHINE}, value)
        for field, value in (
            ("platform_chassis_slot_number", None),
            ("platform_tray_index", None),
            ("platform_host_id", None),
            ("platform_peer_type", None),
            ("platform_module_id", 4),
        )
    ),
    ("above the limit", "temperature_margin_celsius", {"values": {"margin_temperature": -3}}, -3),
    ("no GPM", "gpm_supported", {"values": {"gpm_supported": 0}}, 0),
    ("old PCI ids", "pci_combined_id", {"values": {"pci_device_id": ALL_ONES_32}}, None),
    ("unknown BAR1", "bar1_total_bytes", {"values": {"bar1_total": ALL_ONES_64}}, None),
    ("fabric not begun", "fabric_manager_status", {"values": {"fabric_state": 1}}, 1),
    ("fabric under way", "fabric_manager_status", {"values": {"fabric_state": 2}}, 2),
    ("fabric complete", "fabric_manager_status", {"values": {"fabric_state": 3}}, 3),
    (
        "fabric failed",
        "fabric_manager_status",
        {"values": {"fabric_state": 3, "fabric_status": 999}},
        4,
    ),
    ("no fabric", "fabric_manager_status", {}, None),
    ("clique", "fabric_clique_id", {"values": {"fabric_state": 3, "fabric_clique": 7}}, 7),
    (
        "no clique yet",
        "fabric_clique_id",
        {"values": {"fabric_state": 2, "fabric_clique": 7}},
        None,
    ),
    (
        "no clique after a failure",
        "fabric_clique_id",
        {"values": {"fabric_state": 3, "fabric_status": 999, "fabric_clique": 7}},
        None,
    ),
]


@pytest.mark.parametrize(
    ("field", "changes", "value"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
async def test_a_reading_has_dcgm_s_number_or_is_left_out(
    fake_nvml: FakeNvml, field: str, changes: Mapping[str, Any], value: float | None
) -> None:
    ctx = FakeSourceContext()
    assert (await read(fake_nvml, h100(**changes), field, ctx=ctx)).get(field) == value
    assert errors(ctx) == {}


@pytest.mark.parametrize(
    ("memory", "ratio"),
    [
        ({"memory_total": 1000, "memory_used": 350, "memory_reserved": 100}, 250 / 900),
        ({"memory_total": 1000, "memory_used": 100, "memory_reserved": 100}, 0),
        ({"memory_total": 1000, "memory_used": 1000, "memory_reserved": 100}, 1),
        ({"memory_total": 1000, "memory_used": 1000, "memory_reserved": 1000}, None),
        ({"memory_total": 0, "memory_used": 0, "memory_reserved": 0}, None),
    ],
    ids=str,
)
async def test_used_memory_is_a_ratio_of_what_is_not_reserved(
    fake_nvml: FakeNvml, memory: dict[str, int], ratio: float | None
) -> None:
    found = await read(fake_nvml, h100(values=memory), "memory_used_ratio")
    assert found.get("memory_used_ratio") == pytest.approx(ratio)


async def test_an_old_driver_s_used_memory_is_a_ratio_of_all(fake_nvml: FakeNvml) -> None:
    memory = {"memory_total": 1000, "memory_used": 350, "memory_reserved": 100}
    lacking = {"nvmlDeviceGetMemoryInfo_v2": codes.FUNCTION_NOT_FOUND}
    found = await read(fake_nvml, h100(values=memory, errors=lacking), "memory_used_ratio")
    assert found == {"memory_used_ratio": 0.35}


async def test_an_instance_has_its_own_memory_ratio_and_address_space(fake_nvml: FakeNvml) -> None:
    names = [name for name in DETAILS if (field := by_name(name)) is not None and field.mig]
    bar1 = {f"bar1_{part}_bytes" for part in ("total", "used", "free")}
    assert set(names) == {"memory_used_ratio", *bar1}
    samples = await first_round(fake_nvml, mig_node(), *names)
    found = values(samples, mig(0, 7))
    assert found.keys() == set(names)
    assert found["bar1_total_bytes"] < values(samples, GPU[0])["bar1_total_bytes"]


async def test_a_card_without_any_of_them_has_no_readings_and_no_errors(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    found = await read(fake_nvml, h100(errors=NOTHING_SUPPORTED), *DETAILS, ctx=ctx)
    # What the node reports, and what is known without the card.
    assert found == {
        "node_gpus": 1,
        "cuda_driver_version": 13000,
        "nvml_index": 0,
        "mig_mode": 0,
        "nvlink_p2p_reachable": 0,
    }
    assert errors(ctx) == {}


async def test_a_t4_has_those_of_its_generation(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    found = await read(fake_nvml, t4(), *DETAILS, ctx=ctx)
    assert found["cuda_compute_capability"] == 7 * 65536 + 5
    assert {"max_sm_clock_mhz", "pcie_link_gen", "bar1_used_bytes"} <= found.keys()
    assert not [name for name in found if name.startswith(("fabric", "c2c", "power_smoothing"))]
    assert errors(ctx) == {}


ONCE = [name for name in DETAILS if (field := by_name(name)) and field.tier is Tier.ONCE]


@pytest.mark.slow
async def test_constants_are_read_once_and_reported_in_each_slow_round(
    fake_nvml: FakeNvml,
) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*ONCE, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100(values={"platform_slot": 1, "inforom_valid": 1})]))
    async with running(ctx, options(interval=0.1, slow=0.1, processes=False)):
        await next_rounds(ctx)
        fake_nvml.calls(reset=True)
        samples = await next_rounds(ctx, 3)
    calls = fake_nvml.calls()
    assert "nvmlDeviceValidateInforom" not in calls
    assert calls.get("nvmlDeviceGetPciInfo_v3", 0) == calls.get("nvmlDeviceGetMaxClockInfo", 0) == 0
    found = values(samples, GPU[0])
    # The fake has no checksum.
    assert found.keys() == {*ONCE, "gpu_up"} - {"inforom_checksum"}


@pytest.mark.slow
async def test_constants_do_not_keep_gpu_up_at_1(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan([*ONCE, "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100()]))
    async with running(ctx, options(interval=0.1, slow=0.1, processes=False)):
        await next_rounds(ctx)
        fake_nvml.set(Scenario(gpus=[h100(errors={"*": 999})]))
        samples = await next_rounds(ctx)
    assert values(samples, GPU[0]) == {"gpu_up": 0}


@pytest.mark.slow
async def test_a_constant_that_failed_is_read_again(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["max_sm_clock_mhz", "gpu_up"])
    fake_nvml.set(Scenario(gpus=[h100(errors={"nvmlDeviceGetMaxClockInfo": 999})]))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        assert "max_sm_clock_mhz" not in values(await next_rounds(ctx), GPU[0])
        fake_nvml.set(Scenario(gpus=[h100()]))
        assert values(await next_rounds(ctx), GPU[0])["max_sm_clock_mhz"] == 1980


@pytest.mark.parametrize("code", [3, 4, 13, 999])
async def test_a_field_value_that_fails_does_not_affect_the_others(
    fake_nvml: FakeNvml, code: int
) -> None:
    ctx = FakeSourceContext()
    scopes = [0, ALL_ONES_32]
    fields = {(number, scope): Field(1, "ull") for number, _ in VALUES.values() for scope in scopes}
    fields |= {(220, scope): Field(error=code) for scope in scopes}
    found = await read(fake_nvml, h100(fields=fields), *VALUES, ctx=ctx)
    assert found.keys() == {name for name, (number, _) in VALUES.items() if number != 220}
    assert set(errors(ctx)) == ({(GPU[0], "unknown")} if code == 999 else set())
    assert fake_nvml.calls()["nvmlDeviceGetFieldValues"] == 1, "one call for all"


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ("version 3", {"fabric_health_mask", "fabric_health_summary", "fabric_manager_status"}),
        ("no call", set()),
    ],
)
async def test_the_fabric_s_health_needs_a_driver_that_reports_it(
    fake_nvml: FakeNvml, newest: str, expected: set[str]
) -> None:
    lacking = {} if newest == "version 3" else {"nvmlDeviceGetGpuFabricInfoV": 13}
    gpu = h100(values={"fabric_state": 2, "fabric_health_mask": 2}, errors=lacking)
    found = await read(fake_nvml, gpu, *(n for n in DETAILS if n.startswith("fabric")))
    assert found.keys() == expected


@pytest.mark.parametrize("old", [True, False], ids=["Ampere", "Hopper"])
async def test_errors_of_a_link_are_under_one_of_two_ids(fake_nvml: FakeNvml, old: bool) -> None:
    names = [f"nvlink_{link}_replay_errors" for link in (0, 5, 6, 11, 12)]
    ids = {0: 46, 5: 51, 6: 108, 11: 113}
    fields: dict[int | tuple[int, int], Field] = (
        {ids[link]: Field(10 + link, "ull") for link in ids}
        if old
        else {(161, link): Field(20 + link, "ull") for link in range(18)}
    )
    ctx = FakeSourceContext()
    gpu = h100(**{**linked(links=12 if old else 18, old=old), "fields": fields})
    found = await read(fake_nvml, gpu, *names, ctx=ctx)
    assert found == (
        {f"nvlink_{link}_replay_errors": 10 + link for link in ids}
        if old
        else {f"nvlink_{link}_replay_errors": 20 + link for link in (*ids, 12)}
    )
    assert errors(ctx) == {}


async def test_newer_links_have_no_count_of_wrong_data_packets(fake_nvml: FakeNvml) -> None:
    names = [name for name in DETAILS if name.endswith("_crc_data_errors")]
    assert len(names) == 12
    assert await read(fake_nvml, h100(**linked()), *names) == {}


@pytest.mark.parametrize(
    ("status", "others", "mask"),
    [(0, 4, 0b1110), (3, 4, 0), (0, 1, 0), (999, 4, None)],
    ids=["reachable", "not reachable", "no other GPU", "unknown"],
)
async def test_reachable_peers_are_bits(
    fake_nvml: FakeNvml, status: int, others: int, mask: int | None
) -> None:
    failing = {"nvmlDeviceGetP2PStatus": status} if status == 999 else {}
    gpus = [h100(at, values={"p2p_2": status % 999}, errors=failing) for at in range(others)]
    samples = await first_round(fake_nvml, Scenario(gpus=gpus), "nvlink_p2p_reachable")
    assert values(samples, GPU[0]).get("nvlink_p2p_reachable") == mask


@pytest.mark.slow
async def test_rates_of_each_direction_are_those_of_its_counter(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    rate = "bandwidth_bytes_per_second"
    expected = {
        f"nvlink_transmitted_{rate}": 18 * 3e6,
        f"nvlink_received_{rate}": 18 * 1e6,
        f"nvlink_3_transmitted_{rate}": 3e6,
        f"nvlink_4_received_{rate}": 1e6,
    }
    ctx.plan = FieldPlan([*expected, "gpu_up"])
    card = linked(sent=Ramp(10**9, 3e6), received=Ramp(10**9, 1e6))
    fake_nvml.set(Scenario(gpus=[h100(**card)]))
    async with running(ctx, options(interval=0.2, slow=0.2, processes=False)):
        found = values(await next_rounds(ctx, 4), GPU[0])
    del found["gpu_up"]
    assert found == {name: pytest.approx(kib * 1024, rel=0.2) for name, kib in expected.items()}
