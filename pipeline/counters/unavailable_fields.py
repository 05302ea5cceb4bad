"""Names that DCGM or dcgm-exporter has and podgpu doesn't, with the reason and the way out."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_THROUGHPUT: Final = "NVML measures it anew at each call, which takes 20 ms"

_UNIT: Final = "podgpu has the reading in another unit"
_CYCLES: Final = "podgpu has profiling fields as ratios, not as counts of cycles"
_UUID: Final = ("it is a text", "the label UUID stands on every series")
_BUS_ID: Final = ("it is a text", "the label pci_bus_id stands on every series")
_MINOR: Final = ("it is a constant", "the label device stands on every series")

_OF_HEALTH: Final = (
    "podgpu_gpu_up, podgpu_xid_errors_total and, with also: [health], podgpu_recovery_action tell "
    "of health"
)

ABSENT: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "DCGM_EXP_GPU_HEALTH_STATUS": (
            "the health checks are DCGM's own, NVML has none",
            _OF_HEALTH,
        ),
        "DCGM_EXP_CLOCK_EVENTS_TOTAL": (
            "podgpu counts clock events within a window",
            "DCGM_EXP_CLOCK_EVENTS_COUNT counts those, podgpu_clock_throttle_active shows each",
        ),
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": (
            _THROUGHPUT,
            "DCGM_FI_PROF_PCIE_TX_BYTES counts the same bytes",
        ),
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": (
            _THROUGHPUT,
            "DCGM_FI_PROF_PCIE_RX_BYTES counts the same bytes",
        ),
        "dcgm_pcie_tx_throughput": (
            _THROUGHPUT,
            "dcgm_fi_prof_pcie_tx_bytes counts the same bytes",
        ),
        "dcgm_pcie_rx_throughput": (
            _THROUGHPUT,
            "dcgm_fi_prof_pcie_rx_bytes counts the same bytes",
        ),
        "DCGM_FI_DEV_UUID": _UUID,
        "DCGM_FI_DEV_GPU_UUID": _UUID,
        "DCGM_FI_DEV_PCI_BUSID": _BUS_ID,
        "DCGM_FI_DEV_PCI_BUS_ID": _BUS_ID,
        "DCGM_FI_DEV_MINOR_NUMBER": _MINOR,
        "DCGM_FI_DEV_GPU_MINOR_NUMBER": _MINOR,
        "DCGM_FI_DEV_GPU_UTIL_RATIO": (
            "DCGM 4.6 means percent by it, DCGM 4.7 a ratio from 0 to 1",
            "DCGM_FI_DEV_GPU_UTIL is in percent in both",
        ),
        "DCGM_FI_DEV_SM_CLOCK_HERTZ": (_UNIT, "DCGM_FI_DEV_SM_CLOCK is the same in MHz"),
        "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": (_UNIT, "DCGM_FI_DEV_MEM_CLOCK is the same in MHz"),
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": (
            _UNIT,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION is the same in millijoules",
        ),
        "DCGM_FI_DEV_FAN_SPEED_RATIO": (_UNIT, "DCGM_FI_DEV_FAN_SPEED is the same in percent"),
        "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL": (
            _CYCLES,
            "DCGM_FI_PROF_SM_ACTIVE is the part of them in which an SM was active",
        ),
        **{
            f"DCGM_FI_PROF_{unit}_CYCLES_ACTIVE_TOTAL": (
                _CYCLES,
                f"DCGM_FI_PROF_{ratio} is the part of the time",
            )
            for unit, ratio in (
                ("SM", "SM_ACTIVE"),
                ("MMA", "PIPE_TENSOR_ACTIVE"),
                ("HMMA", "PIPE_TENSOR_HMMA_ACTIVE"),
                ("IMMA", "PIPE_TENSOR_IMMA_ACTIVE"),
                ("DFMA", "PIPE_TENSOR_DFMA_ACTIVE"),
                ("INT", "PIPE_INT_ACTIVE"),
                ("FP64", "PIPE_FP64_ACTIVE"),
                ("FP32", "PIPE_FP32_ACTIVE"),
                ("FP16", "PIPE_FP16_ACTIVE"),
            )
        },
        "DCGM_FI_PROF_DMMA_CYCLES_ACTIVE_TOTAL": (
            _CYCLES,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE is the part of the time for all tensor pipes together",
        ),
    }
)
"""Why, and the way out, by name. The lists that dcgm-exporter ships name the first six; those of
4.6.0-4.8.3 and newer name the counts of cycles too, in comments."""

_FAMILIES: Final = (
    ("DCGM_FI_DEV_NVSWITCH_", "it is of an NVSwitch, and podgpu reads GPUs"),
    ("DCGM_FI_DEV_SXID_", "it is of an NVSwitch, and podgpu reads GPUs"),
    ("DCGM_FI_DEV_CPU_", "it is of a processor, and podgpu reads GPUs"),
    ("DCGM_FI_DEV_CONNECTX_", "it is of a network adapter, and podgpu reads GPUs"),
    ("DCGM_FI_DEV_VGPU_", "it is of a virtual GPU on its host, which podgpu does not read"),
    ("DCGM_FI_IMEX_", "it is of the IMEX service, which DCGM alone asks"),
    ("DCGM_FI_SYSMON_", "it is of the machine, and podgpu reads GPUs"),
    ("DCGM_FI_DEV_DIAG_", "it is a result of DCGM's diagnosis, and NVML has none"),
)


def why(name: str) -> str:
    """Return why DCGM's name can't be given, and the way out; empty for any other name."""
    if name in ABSENT:
        reason, instead = ABSENT[name]
        return f"can't be given: {reason}; {instead}"
    for prefix, reason in _FAMILIES:
        if name.startswith(prefix):
            return f"can't be given: {reason}"
    return ""
