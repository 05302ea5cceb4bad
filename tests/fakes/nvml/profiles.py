"""Data of the H100: the readings of an idle card, and its MIG profiles."""

import re
from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
DRIVER: Final = "580.159.04"
NVML: Final = "13.580.159.04"
CUDA: Final = 13000
NAME: Final = "NVIDIA H100 80GB HBM3"

# One idle H100 80GB, clocks in MHz, power in mW, energy in mJ, memory in bytes.
VALUES: Final[dict[str, int]] = {
    "architecture": 9,
    "brand": 14,
    "board_id": 6,
    "module_id": 3,
    "compute_major": 9,
    "compute_minor": 0,
    "gpu_cores": 16896,
    "fans": 0,
    "pci_device_id": 590352606,
    "pci_subsystem_id": 381751518,
    "persistence_mode": 1,
    "compute_mode": 0,
    "memory_total": 85520809984,
    "memory_used": 503316480,
    "memory_reserved": 503316480,
    "bar1_total": 137438953472,
    "bar1_used": 1703936,
    "util_gpu": 0,
    "util_memory": 0,
    "util_period": 100000,
    "enc_util": 0,
    "dec_util": 0,
    "jpg_util": 0,
    "ofa_util": 0,
    "temperature": 43,
    "memory_temperature": 46,
    "margin_temperature": 44,
    "temp_threshold_0": 95,
    "temp_threshold_1": 89,
    "temp_threshold_2": 95,
    "temp_threshold_3": 87,
    "clock_0": 885,
    "clock_1": 885,
    "clock_2": 2619,
    "clock_3": 900,
    "max_clock_0": 1980,
    "max_clock_1": 1980,
    "max_clock_2": 2619,
    "max_clock_3": 1545,
    "power_usage": 74517,
    "power_management": 1,
    "power_limit": 700000,
    "power_default_limit": 700000,
    "power_limit_min": 200000,
    "power_limit_max": 700000,
    "enforced_power_limit": 700000,
    "energy": 3832567,
    "pstate": 0,
    "clocks_event_reasons": 1,
    "supported_clocks_event_reasons": 511,
    "pcie_replay": 1,
    "pcie_link_gen": 5,
    "pcie_link_width": 16,
    "pcie_max_link_gen": 5,
    "pcie_max_link_width": 16,
    "pcie_throughput_0": 3521,
    "pcie_throughput_1": 457,
    "ecc_mode_current": 1,
    "ecc_mode_pending": 1,
    "ecc_0_0": 0,
    "ecc_0_1": 0,
    "ecc_1_0": 0,
    "ecc_1_1": 0,
    "ecc_0_0_2": 0,
    "ecc_0_1_2": 0,
    "ecc_1_0_2": 0,
    "ecc_1_1_2": 0,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 0,
    "remapped_pending": 0,
    "remapped_failure": 0,
    "banks_max": 2560,
    "banks_high": 0,
    "banks_partial": 0,
    "banks_low": 0,
    "banks_none": 0,
    "sram_exceeded": 0,
    "virtualization_mode": 1,
    "event_types": 65439,
    "violation_0": 0,
    "violation_1": 0,
    "violation_2": 0,
    "violation_3": 0,
    "violation_4": 39378078592,
    "violation_5": 0,
    "recovery_action": 0,
    "licence_supported": 0,
    "gpm_supported": 1,
    "topology": 30,
    "p2p_0": 0,
    "p2p_1": 0,
    "p2p_2": 0,
    "p2p_3": 0,
    "p2p_4": 5,
    "p2p_5": 0,
}

# Metrics of GPU performance monitoring, by id: engines and pipes in percent, then MiB/s.
GPM_OF_INSTANCE: Final = (*range(1, 14), *range(30, 38), *range(40, 48), 50, 51)
GPM: Final = (*GPM_OF_INSTANCE, 20, 21, *range(60, 98), *range(100, 104), *range(160, 164))

UNSAMPLED_WITH_MIG: Final = (1, 2, 3, 4)

# With MIG on, the driver reports no utilization of the whole card.
UNSUPPORTED_WITH_MIG: Final = frozenset(
    {"util_gpu", "util_memory", "enc_util", "dec_util", "jpg_util", "ofa_util"}
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A GPU instance profile with NVML's number and description."""

    name: str
    number: int
    """The NVML_GPU_INSTANCE_PROFILE_x constant."""
    id: int
    slices: int
    instances: int
    multiprocessors: int
    memory_mib: int


PROFILES: Final[tuple[Profile, ...]] = (
    Profile("1g.10gb", 0, 19, 1, 7, 16, 9856),
    Profile("1g.10gb+me", 7, 20, 1, 1, 16, 9856),
    Profile("1g.20gb", 9, 15, 1, 4, 26, 19968),
    Profile("2g.20gb", 1, 14, 2, 3, 32, 19968),
    Profile("3g.40gb", 2, 9, 3, 2, 60, 40448),
    Profile("4g.40gb", 3, 5, 4, 1, 64, 40448),
    Profile("7g.80gb", 4, 0, 7, 1, 132, 81152),
)

_SPLIT = re.compile(r"(?:(\d)c\.)?(.+)")


def split_profile(name: str) -> tuple[Profile, int]:
    """Return the GPU instance profile and the compute slices of "2g.20gb" or "1c.2g.20gb"."""
    match = _SPLIT.fullmatch(name)
    assert match is not None
    for profile in PROFILES:
        if profile.name == match[2]:
            return profile, int(match[1]) if match[1] else profile.slices
    raise ValueError(f"no such MIG profile: {name}")
