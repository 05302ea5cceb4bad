"""Complete pages of several releases of dcgm-exporter."""

from pipeline.fields import FieldPlan
from pipeline.model import Device, MigPlace
from tests.sources.dcgm.reading import PAGES, A, B, by_series, plain, read

MIB = 1 << 20


def page(release: str) -> bytes:
    return (PAGES / f"{release}.prom").read_bytes()


def test_the_page_of_release_1_7_is_read() -> None:
    found = read(page("1.7"))
    assert found.devices == (Device(A, index=0), Device(B, index=1))
    assert plain(found, B) == {
        "sm_clock_mhz": 1530,
        "memory_clock_mhz": 877,
        "gpu_temperature_celsius": 58,
        "power_watts": 287.004,
        "energy_millijoules": 5102348331,
        "pcie_replays": 0,
        "gpu_utilization_percent": 97,
        "memory_copy_utilization_percent": 41,
        "xid_last": 31,
        "memory_free_bytes": 4021 * MIB,
        "memory_used_bytes": 12109 * MIB,
        "ecc_uncorrected_volatile": 0,
        "retired_pages_double_bit": 1,
        "nvlink_bandwidth_bytes_per_second": 0,
    }
    assert found.dropped == {"blank": 2}


def test_the_page_of_release_2_4_is_read() -> None:
    found = read(page("2.4"))
    model = "NVIDIA A100-SXM4-40GB"
    assert found.devices == (Device(A, 0, 0, model=model), Device(B, 1, 1, model=model))
    assert plain(found, B) == {
        "sm_clock_mhz": 1410,
        "gpu_temperature_celsius": 61,
        "power_watts": 301.22,
        "gpu_utilization_percent": 100,
        "memory_used_bytes": 30211 * MIB,
        "nvlink_bandwidth_bytes_per_second": 0,
        "vgpu_license_status": 0,
        "graphics_engine_active_ratio": 0.984211,
        "tensor_active_ratio": 0.412004,
        # The counters file declares a counter, but DCGM's value is a rate.
        "pcie_transmit_bytes_per_second": 90233471,
    }
    assert not found.dropped


def test_the_page_of_release_3_1_with_mig_instances_is_read() -> None:
    found = read(page("3.1"))
    small, large = f"MIG-{B}/7", f"MIG-{B}/2"
    assert [device.uuid for device in found.devices] == [A, B, small, large]
    assert {device.driver for device in found.devices} == {"525.85.12"}
    assert [device.mig for device in found.devices[2:]] == [
        MigPlace(B, 7, None, "1g.5gb"),
        MigPlace(B, 2, None, "3g.20gb"),
    ]
    assert found.devices[2].facts == (("driver_version", "525.85.12"),)
    assert found.devices[2].index == 1
    # dcgm-exporter repeats the GPU's readings for each instance.
    assert plain(found, B) == {"sm_clock_mhz": 1275, "xid_last": 0}
    assert plain(found, small) == {
        "memory_used_bytes": 19 * MIB,
        "graphics_engine_active_ratio": 0.125,
    }
    assert plain(found, A)["xid_last"] == 79
    assert plain(found, A)["pcie_receive_bytes_per_second"] == 4000
    assert not found.dropped


def test_the_page_of_release_4_2_is_read() -> None:
    found = read(page("4.2"))
    facts = (("driver_version", "570.86.15"), ("serial", "1650123456000"))
    assert found.devices[0] == Device(
        A, 0, 0, "00000000:01:00.0", "NVIDIA H100 80GB HBM3", "570.86.15", facts=facts
    )
    window = ("window_size_in_ms", "300000")
    values = by_series(found)
    assert values[A, "xid_errors_in_window", (window, ("xid", "43"))] == 2
    assert values[B, "xid_errors_in_window", (window,)] == 0
    assert values[A, "clock_events_in_window", (("clock_event", "sw_thermal"), window)] == 3
    # The value of the GPU, not of one of its links.
    assert values[A, "nvlink_bandwidth_bytes_per_second", ()] == 812345 * 1000 * 1024
    assert values[A, "violation_power_nanoseconds", ()] == 1500300
    assert values[A, "energy_millijoules", ()] == 99281733882
    assert not found.dropped


def test_the_field_names_since_dcgm_4_6_are_known() -> None:
    found = read(page("4.6"))
    facts = (("driver_version", "610.12"), ("serial", "1650123456000"))
    assert found.devices[0] == Device(
        A, 0, 0, "00000000:01:00.0", "NVIDIA H100 80GB HBM3", "610.12", facts=facts
    )
    assert plain(found, A) == {
        "gpu_temperature_celsius": 61,
        "power_watts": 301.22,
        "power_limit_enforced_watts": 700,
        "performance_state": 0,
        "xid_last": 79,
        "clock_throttle_reasons": 4,
        "retired_pages_double_bit": 1,
        "remapped_rows_uncorrectable": 2,
        "nvlink_bandwidth_bytes_per_second": 812345 * 1000 * 1024,
        "nvlink_17_bandwidth_bytes_per_second": 17 * 1000 * 1024,
        "tensor_active_ratio": 0.412004,
        "nvdec7_active_ratio": 0.25,
        # A counter in addition to the rate, which keeps its name.
        "pcie_transmitted_bytes": 90233471000,
        "pcie_transmit_bytes_per_second": 80211234,
    }
    assert not found.dropped


def test_values_in_the_base_units_of_dcgm_4_7_are_converted() -> None:
    found = read(page("4.7"))
    assert plain(found, A) == {
        "sm_clock_mhz": 1755,
        "memory_clock_mhz": 2619,
        "energy_millijoules": 99281733,
        "gpu_utilization_percent": 97,
        "memory_copy_utilization_percent": 50,
        "violation_power_nanoseconds": 2_500_000_000,
        "memory_total_bytes": 85520809984,
        "memory_used_bytes": MIB + 1,
        "nvlink_bandwidth_bytes_per_second": 812345,
    }
    assert not found.dropped


def test_a_name_that_changed_its_unit_is_read_only_if_the_page_shows_its_release() -> None:
    ratio = f'DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu="0",UUID="{A}"}} 1\n'
    clock = f'DCGM_FI_DEV_SM_CLOCK_HERTZ{{gpu="0",UUID="{A}"}} 1755000000\n'
    assert plain(read((ratio + clock).encode()), A) == {
        "sm_clock_mhz": 1755,
        "gpu_utilization_percent": 100,
    }
    old = clock.replace("_HERTZ", "").replace("000000\n", "\n")
    assert plain(read((ratio + old).encode()), A) == {"sm_clock_mhz": 1755}


def test_fields_that_are_not_in_the_plan_are_ignored() -> None:
    found = read(page("4.2"), FieldPlan(["sm_clock_mhz"]))
    assert {field for _, field, _ in by_series(found)} == {"sm_clock_mhz"}
    assert len(found.devices) == 2
