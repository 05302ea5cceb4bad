"""A GPU that has every reading of the catalogue, and the expected value of each."""

import re
from typing import Final

from pipeline.fields import CATALOGUE
from tests.fakes.nvml import Gpm, Sampled, linked
from tests.sources.nvml import detail_fields

SCENARIO_VALUES: Final = {
    **detail_fields.SCENARIO_VALUES,
    "clock_1": 1635,
    "clock_2": 2619,
    "temperature": 61,
    "memory_temperature": 73,
    "power_usage": 689_480,
    "energy": 10_593_629,
    "pcie_replay": 7,
    "util_gpu": 98,
    "util_memory": 43,
    "enc_util": 11,
    "dec_util": 12,
    "pstate": 2,
    "clocks_event_reasons": 0x44,
    "memory_total": 85_520_809_984,
    "memory_used": 6_675_628_032,  # of the first version of the call: includes the reserved part
    "memory_reserved": 675_628_032,
    "ecc_0_0": 1,
    "ecc_1_0": 2,
    "ecc_0_1": 3,
    "ecc_1_1": 4,
    "remapped_correctable": 5,
    "remapped_uncorrectable": 6,
    "remapped_pending": 1,
    "remapped_failure": 0,
    "power_limit": 650_000,
    "enforced_power_limit": 640_500,
    "power_default_limit": 700_000,
    "power_limit_min": 200_000,
    "power_limit_max": 710_000,
    "temp_threshold_0": 95,
    "temp_threshold_1": 89,
    "fans": 2,
    "fan_speed_0": 40,
    "fan_speed_1": 42,
    "licence_supported": 1,
    "licence_state": 1,
    "retired_single": 3,
    "retired_double": 2,
    "retired_pending": 1,
    "violation_0": 1_000_000_001,
    "violation_1": 2,
    "violation_2": 3,
    "violation_3": 4,
    "violation_4": 39_378_078_592,
    "violation_5": 6,
    "recovery_action": 3,
    "p2p_2": 3,
}

LINKED: Final = linked(sent=1000, received=2000, links=2, old=True, down=1)

FIELDS: Final = {**LINKED["fields"], **detail_fields.SCENARIO_FIELDS}

READINGS: Final[dict[str, float | None]] = {
    **detail_fields.READINGS,
    "gpu_up": 1,
    "sm_clock_mhz": 1635,
    "memory_clock_mhz": 2619,
    "gpu_temperature_celsius": 61,
    "memory_temperature_celsius": 73,
    "power_watts": 689.48,
    "energy_millijoules": 10_593_629,
    "pcie_replays": 7,
    "gpu_utilization_percent": 98,
    "memory_copy_utilization_percent": 43,
    "encoder_utilization_percent": 11,
    "decoder_utilization_percent": 12,
    "performance_state": 2,
    "clock_throttle_reasons": 0x44,
    "clock_throttle_active{gpu_idle}": 0,
    "clock_throttle_active{clocks_setting}": 0,
    "clock_throttle_active{power_cap}": 1,
    "clock_throttle_active{hw_slowdown}": 0,
    "clock_throttle_active{sync_boost}": 0,
    "clock_throttle_active{sw_thermal}": 0,
    "clock_throttle_active{hw_thermal}": 1,
    "clock_throttle_active{hw_power_brake}": 0,
    "clock_throttle_active{display_clocks}": 0,
    "memory_total_bytes": 85_520_809_984,
    "memory_used_bytes": 6_000_000_000,
    "memory_reserved_bytes": 675_628_032,
    "memory_free_bytes": 85_520_809_984 - 6_000_000_000 - 675_628_032,
    "processes{compute}": 2,
    "processes{graphics}": 1,
    "processes{mps}": 0,
    "ecc_corrected_volatile": 1,
    "ecc_uncorrected_volatile": 2,
    "ecc_corrected_aggregate": 3,
    "ecc_uncorrected_aggregate": 4,
    "remapped_rows_correctable": 5,
    "remapped_rows_uncorrectable": 6,
    "row_remap_pending": 1,
    "row_remap_failed": 0,
    "power_instant_watts": 689.48,
    "power_limit_watts": 650,
    "power_limit_enforced_watts": 640.5,
    "power_limit_default_watts": 700,
    "power_limit_min_watts": 200,
    "power_limit_max_watts": 710,
    "temperature_slowdown_celsius": 89,
    "temperature_shutdown_celsius": 95,
    "fan_speed_percent": 42,
    "vgpu_license_status": 1,
    "retired_pages_single_bit": 3,
    "retired_pages_double_bit": 2,
    "retired_pages_pending": 1,
    "violation_power_nanoseconds": 1_000_000_001,
    "violation_thermal_nanoseconds": 2,
    "violation_sync_boost_nanoseconds": 3,
    "violation_board_limit_nanoseconds": 4,
    "violation_low_utilization_nanoseconds": 39_378_078_592,
    "violation_reliability_nanoseconds": 6,
    "recovery_action": 3,
    "p2p_status{TopologyNotSupported,1}": 3,
    "nvlink_transmitted_bytes": 2 * 1000 * 1024,
    "nvlink_received_bytes": 2 * 2000 * 1024,
    "nvlink_bytes{transmitted,0}": 1000 * 1024,
    "nvlink_bytes{received,0}": 2000 * 1024,
    "nvlink_bytes{transmitted,1}": 1000 * 1024,
    "nvlink_bytes{received,1}": 2000 * 1024,
    "nvlink_bandwidth_bytes_per_second": 0,
    "nvlink_0_bandwidth_bytes_per_second": 0,
    "nvlink_1_bandwidth_bytes_per_second": 0,
    "nvlink_up{0}": 1,
    "nvlink_up{1}": 0,
    "nvlink_crc_flit_errors": 38,
    "nvlink_crc_data_errors": 45,
    "nvlink_replay_errors": 52,
    "nvlink_recovery_errors": 59,
    **{
        name: None
        for event in (
            "gpu_idle",
            "clocks_setting",
            "power_cap",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "hw_power_brake",
            "display_clocks",
        )
        for name in (f"clock_events_in_window{{{event},300000}}", f"clock_events{{{event}}}")
    },
    "pcie_transmitted_bytes": None,
    "pcie_received_bytes": None,
    **{
        field.name: 0.5 if field.unit == "ratio" else 2 << 20
        for field in CATALOGUE
        if re.fullmatch(r"nvmlGpmMetricsGet\(\d+\)", field.call)
    },
    **{
        f"{name}_{which}_{unit}": value
        for name, unit, value in (
            ("power", "watts", 300),
            ("gpu_utilization", "percent", 31),
            ("memory_copy_utilization", "percent", 32),
            ("encoder_utilization", "percent", 33),
            ("decoder_utilization", "percent", 34),
            ("sm_clock", "mhz", 1500),
            ("memory_clock", "mhz", 2500),
        )
        for which in ("min", "mean", "max")
    },
}
"""By name. None for counters that grow with the duration of the test; other tests cover them."""

GPM: Final = {
    **dict.fromkeys((*range(1, 60), *range(160, 164)), Gpm(50.0)),
    **dict.fromkeys((20, 21, *range(60, 104)), Gpm(2.0)),
}
SAMPLED: Final = {
    ring: Sampled(value, period=0.05)
    for ring, value in enumerate((300_000, 31, 32, 33, 34, 1500, 2500))
}
