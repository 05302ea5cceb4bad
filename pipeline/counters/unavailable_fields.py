"""Fields of DCGM or dcgm-exporter that podgpu does not have, with the reason and an alternative."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_THROUGHPUT: Final = "NVML measures it at each call, which takes 20 ms"

_UNIT: Final = "podgpu has the field in another unit"
_CYCLES: Final = "podgpu has profiling fields as ratios, not as counts of cycles"
_UUID: Final = ("it is a text", "every series has it as label UUID")
_BUS_ID: Final = ("it is a text", "every series has it as label pci_bus_id")
_MINOR: Final = ("it is a constant", "every series has it in the label device")

_OF_HEALTH: Final = (
    "podgpu_gpu_up, podgpu_xid_errors_total and, with also: [health], podgpu_recovery_action show "
    "the health"
)

ABSENT: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "DCGM_EXP_GPU_HEALTH_STATUS": (
            "the health checks are part of DCGM, NVML has none",
            _OF_HEALTH,
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
            "it is in percent in DCGM 4.6, and a ratio from 0 to 1 in DCGM 4.7",
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
            "DCGM_FI_PROF_SM_ACTIVE is the fraction of them in which an SM was active",
        ),
        **{
            f"DCGM_FI_PROF_{unit}_CYCLES_ACTIVE_TOTAL": (
                _CYCLES,
                f"DCGM_FI_PROF_{ratio} is the fraction of time",
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
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE is the fraction of time for all tensor pipes together",
        ),
    }
)
"""Reason and alternative, by name. The lists of dcgm-exporter contain the first five names. Those
of 4.6.0-4.8.3 and newer also contain the counts of cycles, in comments."""

_FAMILIES: Final = (
    ("DCGM_FI_DEV_NVSWITCH_", "it belongs to an NVSwitch, and podgpu reads only GPUs"),
    ("DCGM_FI_DEV_SXID_", "it belongs to an NVSwitch, and podgpu reads only GPUs"),
    ("DCGM_FI_DEV_CPU_", "it belongs to a processor, and podgpu reads only GPUs"),
    ("DCGM_FI_DEV_CONNECTX_", "it belongs to a network adapter, and podgpu reads only GPUs"),
    ("DCGM_FI_DEV_VGPU_", "it belongs to a virtual GPU on its host, which podgpu does not read"),
    ("DCGM_FI_IMEX_", "it belongs to the IMEX service, which only DCGM queries"),
    ("DCGM_FI_SYSMON_", "it belongs to the machine, and podgpu reads only GPUs"),
    ("DCGM_FI_DEV_DIAG_", "it is a result of DCGM's diagnostics, and NVML has none"),
)


def unavailable_reason(name: str) -> str:
    """Return why a field of DCGM is not available, and the alternative; "" for other names.

    The text has no alternative if there is none.
    """
    if name in ABSENT:
        reason, instead = ABSENT[name]
        return f"is not available: {reason}; {instead}"
    reasons = (reason for prefix, reason in _FAMILIES if name.startswith(prefix))
    reason = next(reasons, "")
    return f"is not available: {reason}" if reason else ""
