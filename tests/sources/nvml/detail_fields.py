"""The fields of the group `details`: what the driver reports for each, and the expected value."""

from typing import Final

from pipeline.fields.memory_fields import PLACES, located_ecc
from tests.fakes.nvml import ALL_ONES_32, Field
from tests.fakes.nvml.scenario import Number

VALUES: Final[tuple[tuple[str, str, Number, float], ...]] = (
    # field, key of the scenario, what the driver reports, expected value
    ("video_clock_mhz", "clock_3", 1545, 1545),
    ("application_sm_clock_mhz", "application_clock_0", 1980, 1980),
    ("application_memory_clock_mhz", "application_clock_2", 2619, 2619),
    ("max_sm_clock_mhz", "max_clock_1", 1990, 1990),
    ("max_memory_clock_mhz", "max_clock_2", 2629, 2629),
    ("max_video_clock_mhz", "max_clock_3", 1555, 1555),
    ("temperature_memory_max_operating_celsius", "temp_threshold_2", 96, 96),
    ("temperature_gpu_max_operating_celsius", "temp_threshold_3", 87, 87),
    ("temperature_margin_celsius", "margin_temperature", 44, 44),
    ("bar1_total_bytes", "bar1_total", 137_438_953_472, 137_438_953_472),
    ("bar1_used_bytes", "bar1_used", 1_703_936, 1_703_936),
    ("sram_errors_exceeded", "sram_exceeded", 1, 1),
    ("banks_remap_max", "banks_max", 2556, 2556),
    ("banks_remap_high", "banks_high", 1, 1),
    ("banks_remap_partial", "banks_partial", 2, 2),
    ("banks_remap_low", "banks_low", 3, 3),
    ("banks_remap_none", "banks_none", 4, 4),
    ("pcie_link_gen", "pcie_link_gen", 4, 4),
    ("pcie_link_width", "pcie_link_width", 8, 8),
    ("pcie_max_link_gen", "pcie_max_link_gen", 5, 5),
    ("pcie_max_link_width", "pcie_max_link_width", 16, 16),
    ("pci_combined_id", "pci_device_id", 0x2330_10DE, 0x2330_10DE),
    ("pci_subsystem_id", "pci_subsystem_id", 0x16C1_10DE, 0x16C1_10DE),
    # Exclusive to one process: 3 in NVML, 2 in DCGM.
    ("compute_mode", "compute_mode", 3, 2),
    ("persistence_mode", "persistence_mode", 1, 1),
    ("mig_max_slices", "max_mig_count", 7, 7),
    ("virtualization_mode", "virtualization_mode", 1, 1),
    ("autoboost_mode", "autoboost", 1, 1),
    ("inforom_checksum", "inforom_checksum", 0xC0FF_EE11, 0xC0FF_EE11),
    ("inforom_valid", "inforom_valid", 1, 1),
    ("platform_chassis_slot_number", "platform_slot", 14, 14),
    ("platform_tray_index", "platform_tray", 9, 9),
    ("platform_host_id", "platform_host", 1, 1),
    ("platform_peer_type", "platform_peer", 1, 1),
    ("platform_module_id", "platform_module", 2, 2),
    ("fabric_clique_id", "fabric_clique", 32_766, 32_766),
    ("fabric_health_mask", "fabric_health_mask", 0b1010_1010, 0b1010_1010),
    ("fabric_health_summary", "fabric_health_summary", 3, 3),
    *(
        (located_ecc(kind, span, place), f"ecc_{kind}_{span}_{place}", number, number)
        for kind in (0, 1)
        for span in (0, 1)
        for place in range(PLACES)
        if (number := 100 * kind + 10 * place + span + 1)
    ),
)

_COUNTED: Final = (
    "clock_reason_sw_therm_slowdown_nanoseconds",
    "clock_reason_hw_therm_slowdown_nanoseconds",
    "clock_reason_hw_power_brake_slowdown_nanoseconds",
)

_SMOOTHING: Final = (
    "enabled",
    "priv_lvl",
    "imm_ramp_down_enabled",
    "applied_tmp_ceil",
    "applied_tmp_floor",
    "max_percent_tmp_floor_setting",
    "min_percent_tmp_floor_setting",
    "hw_circuitry_percent_lifetime_remaining",
    "max_num_preset_profiles",
    "profile_percent_tmp_floor",
    "profile_ramp_up_rate",
    "profile_ramp_down_rate",
    "profile_ramp_down_hyst_val",
    "active_preset_profile",
    "admin_override_percent_tmp_floor",
    "admin_override_ramp_up_rate",
    "admin_override_ramp_down_rate",
    "admin_override_ramp_down_hyst_val",
)

FIELD_VALUES: Final[tuple[tuple[str, int, int, int, float], ...]] = (
    # field, NVML's id, scope, what the driver reports, expected value
    ("ecc_mode", 1, 0, 1, 1),
    ("ecc_mode_pending", 2, 0, 0, 0),
    ("violation_total_app_clocks_nanoseconds", 80, 0, 29_933_266_144, 29_933_266_144),
    ("violation_total_base_clocks_nanoseconds", 81, 0, 29_935_283_616, 29_935_283_616),
    *(
        (name, 269 + at, 0, 7_000_000_000 + at, 7_000_000_000 + at)
        for at, name in enumerate(_COUNTED)
    ),
    *((f"power_smoothing_{name}", 251 + at, 0, 1, 1) for at, name in enumerate(_SMOOTHING)),
    ("pcie_correctable_errors", 173, 0, 17, 17),
    ("c2c_links", 170, 0, 10, 10),
    ("c2c_link_up", 171, 0, 1, 1),
    ("c2c_max_megabytes_per_second", 172, 0, 44_712, 44_712),
    ("c2c_interrupt_errors", 231, 0, 1, 1),
    ("c2c_replay_errors", 232, 0, 2, 2),
    ("c2c_back_to_back_replay_errors", 233, 0, 3, 3),
    ("c2c_power_state", 234, 0, 1, 1),
    ("nvlink_ecc_data_errors", 160, 0, 6, 6),
    ("nvlink_dl_replay_errors", 161, ALL_ONES_32, 11, 11),
    ("nvlink_dl_recovery_errors", 162, ALL_ONES_32, 12, 12),
    ("nvlink_dl_crc_errors", 163, ALL_ONES_32, 13, 13),
    ("nvlink_transmitted_packets", 201, ALL_ONES_32, 1 << 40, 1 << 40),
    ("nvlink_raw_transmitted_bytes", 202, ALL_ONES_32, 1 << 50, 1 << 50),
    ("nvlink_received_packets", 203, ALL_ONES_32, 3, 3),
    ("nvlink_raw_received_bytes", 204, ALL_ONES_32, 4, 4),
    ("nvlink_malformed_packets", 206, ALL_ONES_32, 6, 6),
    ("nvlink_overrun_packets", 207, ALL_ONES_32, 7, 7),
    ("nvlink_receive_errors", 208, ALL_ONES_32, 8, 8),
    ("nvlink_remote_receive_errors", 209, ALL_ONES_32, 9, 9),
    ("nvlink_general_receive_errors", 210, ALL_ONES_32, 10, 10),
    ("nvlink_integrity_errors", 211, ALL_ONES_32, 11, 11),
    ("nvlink_transmit_discards", 212, ALL_ONES_32, 12, 12),
    ("nvlink_successful_recoveries", 213, ALL_ONES_32, 13, 13),
    ("nvlink_failed_recoveries", 214, ALL_ONES_32, 14, 14),
    ("nvlink_recoveries", 215, ALL_ONES_32, 15, 15),
    ("nvlink_effective_errors", 219, ALL_ONES_32, 19, 19),
    # A mantissa of 5 and a negative exponent of 12, and one of 15 and 255.
    ("nvlink_effective_error_rate_raw", 220, ALL_ONES_32, 0x50C, 0x50C),
    ("nvlink_effective_error_ratio", 220, ALL_ONES_32, 0x50C, 5e-12),
    ("nvlink_symbol_errors", 221, ALL_ONES_32, 21, 21),
    ("nvlink_symbol_error_rate_raw", 222, ALL_ONES_32, 0xFFF, 0xFFF),
    ("nvlink_symbol_error_ratio", 222, ALL_ONES_32, 0xFFF, 15e-255),
    *((f"nvlink_fec_history_{at}", 235 + at, ALL_ONES_32, 50 + at, 50 + at) for at in range(16)),
    # Two links: the first one reports errors under the ids of old cards.
    *(
        (f"nvlink_{link}_{kind}_errors", number, scope, number, number)
        for kind, numbers in (
            ("crc_flit", (32, 163)),
            ("crc_data", (39, 40)),
            ("replay", (46, 161)),
            ("recovery", (53, 162)),
        )
        for link, number in enumerate(numbers)
        for scope in [link if number > 160 else 0]
    ),
)

CALCULATED: Final = {
    "memory_used_ratio": 6_000_000_000 / (85_520_809_984 - 675_628_032),
    "bar1_free_bytes": 137_438_953_472 - 1_703_936,
    "clock_reason_sw_power_cap_nanoseconds": 1_000_000_001,
    "clock_reason_sync_boost_nanoseconds": 3,
    "node_gpus": 2,
    "cuda_driver_version": 13_000,
    "cuda_compute_capability": 9 << 16,
    "nvml_index": 0,
    "minor_number": 0,
    "mig_mode": 0,
    "gpm_supported": 1,
    "fabric_manager_status": 3,
    "nvlink_p2p_reachable": 0,
    "nvlink_transmitted_bandwidth_bytes_per_second": 0,
    "nvlink_received_bandwidth_bytes_per_second": 0,
    **{
        f"nvlink_{link}_{way}_bandwidth_bytes_per_second": 0
        for link in (0, 1)
        for way in ("transmitted", "received")
    },
}
"""Fields that no single number of a table determines."""

SCENARIO_VALUES: Final[dict[str, Number]] = {
    **{key: reported for _, key, reported, _ in VALUES},
    "fabric_state": 3,
}
SCENARIO_FIELDS: Final[dict[int | tuple[int, int], Field]] = {
    (number, scope): Field(reported, "ull") for _, number, scope, reported, _ in FIELD_VALUES
}
READINGS: Final[dict[str, float | None]] = {
    **{field: value for field, _, _, value in VALUES},
    **{field: value for field, _, _, _, value in FIELD_VALUES},
    **CALCULATED,
}
