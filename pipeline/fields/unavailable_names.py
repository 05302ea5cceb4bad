"""Why podgpu does not give some fields of DCGM and dcgm-exporter, and what to use instead.

One entry answers all names that its pattern matches, so that a family has one answer. A name that
podgpu gives has no entry here.
"""

import re
from typing import Final, NamedTuple

_PREFIX: Final = "DCGM_FI_"


class Reason(NamedTuple):
    """The answer for a name that podgpu does not give.

    Attributes:
        why: why podgpu does not give it.
        instead: what to use instead; empty if there is nothing.
    """

    why: str
    instead: str = ""

    @property
    def text(self) -> str:
        """Both as one text for messages, in which the name is the subject."""
        return f"is not available: {self.why}{'; ' if self.instead else ''}{self.instead}"


_STRUCTURE: Final = "it is a structure, not a number"
_TEXT: Final = "it is a text"
_THROUGHPUT: Final = "NVML measures it at each call, which takes 20 ms"
_CYCLES: Final = "podgpu has profiling fields as ratios, not as counts of cycles"
_HEALTH: Final = "podgpu_gpu_up, podgpu_xid_errors_total and podgpu_recovery_action show the health"
_PER_LINK: Final = "it has one series for each link, and podgpu has one field for each link"
_REGISTERS: Final = "DCGM reads it from registers of the GPU, which podgpu does not access"
_RECOVERIES: Final = (
    "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS and DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS "
    "are counts of NVML"
)

_REASONS: Final[tuple[tuple[str, str, str], ...]] = (
    # What is no number.
    ("(SYSTEM_FIELD_)?UNKNOWN", "it is DCGM's mark for no field", "remove it"),
    ("DEV_(GPU_)?UUID", _TEXT, "every series has it as label UUID"),
    ("DEV_PCI_BUS_?ID", _TEXT, "every series has it as label pci_bus_id"),
    (
        "DEV_CUDA_VISIBLE_DEVICES_STR|CUDA_GPU_VISIBLE_DEVICES",
        _TEXT,
        "the labels UUID and GPU_I_ID identify the device",
    ),
    (
        "GPU_TOPOLOGY_(PCI|NVLINK|AFFINITY)|SYSTEM_(PCI_TOPOLOGY|NVLINK_TOPOLOGY|GPU_AFFINITY)",
        _STRUCTURE,
        "podgpu topology shows the topology",
    ),
    (
        r"DEV_(CPU|MEM|MEMORY)_AFFINITY_\d",
        "it is a mask of 64 bits, which a metric cannot hold",
        "podgpu topology shows the NUMA node of each GPU",
    ),
    (
        "DEV_MIG_(ATTRIBUTES|GI_INFO|CI_INFO)",
        _STRUCTURE,
        "podgpu_device_info has one series for each MIG instance, with its profile",
    ),
    (
        "DEV_SUPPORTED_CLOCKS|DEV_CLOCKS_SUPPORTED",
        "it is a list, not a number",
        "DCGM_FI_DEV_MAX_SM_CLOCK and DCGM_FI_DEV_MAX_MEM_CLOCK are the highest ones",
    ),
    (
        "DEV_((REQUESTED|ENFORCED|VALID)_POWER|BOARD_POWER)_PROFILE(_[A-Z]+)?_MASK",
        "it is a mask of 255 bits, which a metric cannot hold",
        "",
    ),
    (
        "DEV_(ACCOUNTING_DATA|PROCESS_ACCOUNTING_STATS)",
        "it is a structure, and needs the driver's accounting mode",
        "podgpu usage shows what each container has used",
    ),
    (
        "DEV_(MEM_COPY|GPU)_UTIL_SAMPLES",
        "it is a list of samples, and DCGM 3.0 removed it",
        "the group statistics has the minimum, mean and maximum of the driver's samples",
    ),
    (
        "DEV_(GRAPHICS|COMPUTE)_PIDS",
        "it is a list of processes, and DCGM 3.0 removed it",
        "podgpu_processes counts them, and podgpu_process_memory_used_bytes shows each",
    ),
    (
        "DEV_(ENC_STATS|FBC_STATS|FBC_SESSIONS_INFO)",
        _STRUCTURE,
        "DCGM_FI_DEV_ENC_UTIL is the utilisation of the video encoders",
    ),
    ("DEV_PLATFORM_(INFINIBAND_GUID|CHASSIS_SERIAL_NUMBER)", _TEXT, ""),
    (
        "DEV_FABRIC_CLUSTER_UUID",
        _TEXT,
        "DCGM_FI_DEV_FABRIC_CLIQUE_ID is the number of the GPU's clique in the cluster",
    ),
    # What only DCGM has.
    (
        "DCGM_EXP_GPU_HEALTH_STATUS",
        "the health checks are part of DCGM, NVML has none",
        _HEALTH,
    ),
    (
        "BIND_UNBIND_EVENT|SYSTEM_GPU_BIND_EVENT",
        "it is an event of DCGM",
        "podgpu_gpu_up shows whether the driver has the GPU",
    ),
    (
        "(SYSTEM_GPU_)?SYNC_BOOST",
        "DCGM has deprecated it",
        "DCGM_FI_DEV_SYNC_BOOST_VIOLATION is the time of reduced clocks because of sync boost",
    ),
    (
        "DEV_(GPU_NVLINK_ERRORS|NVLINK_ERROR)",
        "it is an event that DCGM derives from the counters of the links",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL and its relatives are the counters",
    ),
    ("DEV_DIAG_.*", "it is a result of DCGM's diagnostics, and NVML has none", ""),
    ("IMEX_.*", "it belongs to the IMEX service, which only DCGM queries", ""),
    ("DEV_NVLINK_PP(RM|CNT)_.*", _REGISTERS, _RECOVERIES),
    # What NVML has for a part of the GPUs, or podgpu does not read.
    (
        "DEV_NVLINK_CRC_DATA_ERROR_(COUNT_)?L1[2-7](_TOTAL)?",
        "NVML counts these errors for the links 0 to 11 only",
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL counts those of all links",
    ),
    (
        "DEV_CC_MODE",
        "podgpu does not read whether confidential computing is on",
        "nvidia-smi conf-compute -f shows it",
    ),
    (
        "DEV_FABRIC_MANAGER_ERROR(_CODE)?",
        "podgpu reads the state of the registration, not its error",
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS shows whether it failed",
    ),
    (
        "DEV_MEMORY_UNREPAIRABLE(_FLAG)?",
        "podgpu does not read this flag",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE is 1 if a row could not be remapped",
    ),
    # What podgpu has in another form.
    (
        "DEV_PCIE_([TR]X)_THROUGHPUT",
        _THROUGHPUT,
        r"DCGM_FI_PROF_PCIE_\1_BYTES counts the same bytes",
    ),
    (
        r"dcgm_pcie_([tr])x_throughput",
        _THROUGHPUT,
        r"dcgm_fi_prof_pcie_\1x_bytes counts the same bytes",
    ),
    (
        "PROF_SM_CYCLES_(ELAPSED|ACTIVE)_TOTAL",
        _CYCLES,
        "DCGM_FI_PROF_SM_ACTIVE is the fraction of cycles in which an SM was active",
    ),
    (
        "PROF_D?MMA_CYCLES_ACTIVE_TOTAL",
        _CYCLES,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE is the fraction of time for all tensor pipes together",
    ),
    (
        "PROF_([HID][FM]MA)_CYCLES_ACTIVE_TOTAL",
        _CYCLES,
        r"DCGM_FI_PROF_PIPE_TENSOR_\1_ACTIVE is the fraction of time",
    ),
    (
        "PROF_(INT|FP64|FP32|FP16)_CYCLES_ACTIVE_TOTAL",
        _CYCLES,
        r"DCGM_FI_PROF_PIPE_\1_ACTIVE is the fraction of time",
    ),
    (
        "DEV_NVLINK_([A-Z_]+_ERROR)_PER_LINK_TOTAL",
        _PER_LINK,
        r"DCGM_FI_DEV_NVLINK_\1_COUNT_L0, _L1 and so on",
    ),
    (
        "DEV_NVLINK_((?:[TR]X_)?)THROUGHPUT_PER_LINK",
        _PER_LINK,
        r"DCGM_FI_DEV_NVLINK_\1BANDWIDTH_L0, _L1 and so on",
    ),
    (
        "PROF_NVLINK_([TR]X)_BYTES_PER_LINK",
        _PER_LINK,
        r"DCGM_FI_PROF_NVLINK_L0_\1_BYTES, DCGM_FI_PROF_NVLINK_L1_\1_BYTES and so on",
    ),
    # What does not belong to a GPU.
    ("DEV_(NVSWITCH|SXID)_.*", "it belongs to an NVSwitch, and podgpu reads only GPUs", ""),
    (
        "DEV_(CPU_(?!AFFINITY_)|SYSIO_|MODULE_).*",
        "it belongs to a processor, and podgpu reads only GPUs",
        "",
    ),
    ("DEV_CONNECTX_.*", "it belongs to a network adapter, and podgpu reads only GPUs", ""),
    (
        "DEV_(VGPU_(?!LICENSE_STATUS$).*|(CREATABLE|SUPPORTED)_VGPU_TYPE_IDS|SUPPORTED_TYPE_INFO)",
        "it belongs to a virtual GPU on its host, which podgpu does not read",
        "",
    ),
)
"""Pattern of the names, reason and alternative. Names of DCGM are without `DCGM_FI_`. A group of
the pattern can be part of the alternative."""


def unavailable_reason(name: str) -> Reason | None:
    """Return why podgpu does not give a field, and the alternative; None for other names."""
    rest = name.removeprefix(_PREFIX)
    for pattern, why, instead in _REASONS:
        if match := re.fullmatch(pattern, rest):
            return Reason(why, match.expand(instead))
    return None


OF_DCGM_EXPORTER: Final = (
    "DCGM_EXP_GPU_HEALTH_STATUS",
    "dcgm_pcie_tx_throughput",
    "dcgm_pcie_rx_throughput",
)
"""Names that podgpu does not give either, but that DCGM does not have."""

PATTERNS: Final = tuple(pattern for pattern, *_ in _REASONS)
