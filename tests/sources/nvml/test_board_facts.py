"""Facts of a board, such as serial number and firmware: `Device.facts`."""

from dataclasses import replace

import pytest

from pipeline.fields import LABELS, FieldPlan, LabelRow
from pipeline.fields.label_fields import number_of
from pipeline.model import Device, DevicesDiscovered
from sources.nvml.inventory import _BRANDS
from tests.fakes.nvml import (
    NOTHING_SUPPORTED,
    FakeNvml,
    Scenario,
    a100,
    h100,
    h100s,
    mixed,
    t4,
)
from tests.sources.nvml.harness import GPU, next_rounds, options, running, until
from tests.support.contexts import FakeSourceContext

H100 = {
    "brand": "NVIDIA",
    "driver_version": "580.159.04",
    "gsp_firmware_version": "580.159.04",
    "inforom_ecc_version": "7.16",
    "inforom_image_version": "G520.0200.00.05",
    "inforom_oem_version": "2.1",
    "inforom_power_version": "1.0",
    "name": "NVIDIA H100 80GB HBM3",
    "nvml_version": "13.580.159.04",
    "part_number": "695-00000-0000-000",
    "serial": "1650000000000",
    "vbios_version": "96.00.DA.00.0C",
}


ON_REQUEST = {"process_name", *(field.name for field in LABELS if number_of(field.name))}


async def discovered(fake: FakeNvml, scenario: Scenario) -> list[Device]:
    ctx = FakeSourceContext()
    fake.set(scenario)
    async with running(ctx, options(interval=30, slow=60)):
        await until(lambda: [e for e in ctx.events if isinstance(e, DevicesDiscovered)])
    return list(next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices)


async def test_facts_are_those_of_the_board_sorted_by_name(fake_nvml: FakeNvml) -> None:
    (device,) = await discovered(fake_nvml, h100s(1, inforom_power="1.0"))
    assert device.facts == tuple(H100.items())
    assert device.driver == H100["driver_version"]


def test_the_expected_facts_cover_the_labels_of_the_catalogue() -> None:
    assert set(H100) == {field.name for field in LABELS} - ON_REQUEST


async def requested(fake: FakeNvml, scenario: Scenario, *labels: str) -> dict[str, str]:
    """Return the facts of the first GPU, without those that each board has."""
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan(["gpu_up"], labels=[LabelRow(label, label) for label in labels])
    fake.set(scenario)
    async with running(ctx, options(interval=30, slow=60)):
        await until(lambda: [e for e in ctx.events if isinstance(e, DevicesDiscovered)])
    device = next(e for e in ctx.events if isinstance(e, DevicesDiscovered)).devices[0]
    return {name: text for name, text in device.facts if name not in H100}


async def test_constant_numbers_are_facts_on_request(fake_nvml: FakeNvml) -> None:
    values = {"inforom_checksum": 17, "inforom_valid": 1, "platform_slot": 3}
    scenario = h100s(1, values=values, minor=5)
    found = await requested(fake_nvml, scenario, *sorted(ON_REQUEST - {"process_name"}))
    assert found.keys() == ON_REQUEST - {"process_name"}
    expected = {
        "cuda_driver_version_label": "13000",
        "cuda_compute_capability_label": "589824",
        "max_sm_clock_mhz_label": "1980",
        "minor_number_label": "5",
        "pcie_max_link_gen_label": "5",
        "platform_chassis_slot_number_label": "3",
    }
    assert expected.items() <= found.items()


async def test_a_number_that_is_not_requested_as_a_label_is_not_read(fake_nvml: FakeNvml) -> None:
    assert await requested(fake_nvml, h100s(1), "max_sm_clock_mhz_label") == {
        "max_sm_clock_mhz_label": "1980"
    }
    assert "nvmlDeviceValidateInforom" not in fake_nvml.calls()


async def test_a_number_that_the_board_lacks_is_no_fact(fake_nvml: FakeNvml) -> None:
    lacking = h100s(1, errors={"nvmlDeviceGetMaxClockInfo": 3})
    assert await requested(fake_nvml, lacking, "max_sm_clock_mhz_label") == {}


async def test_the_process_name_is_podgpu_s_own(fake_nvml: FakeNvml) -> None:
    scenario = replace(h100s(1), process_name="/usr/bin/podgpu")
    found = await requested(fake_nvml, scenario, "process_name")
    assert found == {"process_name": "/usr/bin/podgpu"}


async def test_facts_that_the_board_does_not_report_are_left_out(fake_nvml: FakeNvml) -> None:
    (device,) = await discovered(fake_nvml, h100s(1, serial=None, values={"brand": 99}))
    assert set(H100) - {name for name, _ in device.facts} == {
        "serial",
        "brand",
        "inforom_power_version",
    }


async def test_driver_and_nvml_version_are_facts_if_nothing_else_is_supported(
    fake_nvml: FakeNvml,
) -> None:
    (device,) = await discovered(fake_nvml, h100s(1, errors=NOTHING_SUPPORTED))
    assert dict(device.facts) == {k: H100[k] for k in ("driver_version", "nvml_version")}


async def test_a_mig_instance_has_the_facts_of_its_gpu(fake_nvml: FakeNvml) -> None:
    devices = await discovered(fake_nvml, mixed())
    by_gpu = {device.uuid: device.facts for device in devices if device.mig is None}
    assert len(set(by_gpu.values())) == 4
    instances = [device for device in devices if device.mig is not None]
    assert len(instances) == 4
    assert all(device.facts == by_gpu[device.gpu_uuid] for device in instances)


@pytest.mark.parametrize("brand", range(1, 17))
async def test_brands_have_dcgm_s_names(fake_nvml: FakeNvml, brand: int) -> None:
    (device,) = await discovered(fake_nvml, h100s(1, values={"brand": brand}))
    assert dict(device.facts)["brand"] == _BRANDS[brand]
    assert {_BRANDS[2], _BRANDS[14]} == {"Tesla", "NVIDIA"}


async def test_the_name_fact_is_the_model_of_each_card(fake_nvml: FakeNvml) -> None:
    devices = await discovered(fake_nvml, Scenario(gpus=[h100(0), a100(1), t4(2)]))
    assert [dict(device.facts)["name"] for device in devices] == [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
        "Tesla T4",
    ]


@pytest.mark.slow
async def test_facts_are_read_once_when_a_gpu_is_opened(fake_nvml: FakeNvml) -> None:
    ctx = FakeSourceContext()
    ctx.plan = FieldPlan()
    fake_nvml.set(h100s(2))
    async with running(ctx, options(interval=0.1, slow=0.1)):
        await next_rounds(ctx, 4)
    calls = fake_nvml.calls()
    assert calls["nvmlDeviceGetSerial"] == calls["nvmlDeviceGetVbiosVersion"] == 2
    assert "nvmlDeviceGetInforomConfigurationChecksum" not in calls


async def test_a_fact_that_fails_does_not_affect_the_others(fake_nvml: FakeNvml) -> None:
    scenario = h100s(2).with_gpu(0, errors={"nvmlDeviceGetVbiosVersion": 999})
    first, second = await discovered(fake_nvml, scenario)
    assert {name for name, _ in second.facts} - {name for name, _ in first.facts} == {
        "vbios_version"
    }
    assert (first.uuid, second.uuid) == (GPU[0], GPU[1])
