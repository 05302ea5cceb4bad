"""Fields of what a GPU is and how it is configured: constants, modes, and its place in a rack."""

from typing import Literal

from pipeline.fields.field import Field, Tier


def _device(
    name: str,
    unit: str,
    about: str,
    call: str,
    dcgm: str,
    *renamed: str,
    tier: Literal[Tier.SLOW, Tier.ONCE] = Tier.ONCE,
) -> Field:
    """Return a field of the group `details`; `dcgm` and `renamed` are without `DCGM_FI_`."""
    return Field(
        name,
        unit,
        about,
        call,
        tier=tier,
        group="details",
        dcgm=f"DCGM_FI_{dcgm}",
        aliases=tuple(f"DCGM_FI_{each}" for each in renamed),
    )


def _mode(name: str, about: str, call: str, dcgm: str, *renamed: str) -> Field:
    return _device(
        name,
        "bool",
        f"1 if {about}, else 0.",
        call,
        dcgm,
        *renamed,
        tier=Tier.SLOW,
    )


def _place(name: str, about: str) -> Field:
    return _device(
        f"platform_{name}",
        "number",
        f"{about}, as the platform reports it.",
        "nvmlDeviceGetPlatformInfo",
        f"DEV_PLATFORM_{name.upper()}",
    )


DEVICES: tuple[Field, ...] = (
    _device(
        "node_gpus",
        "GPUs",
        "GPUs of the node that the driver enumerates; each GPU has the same value.",
        "nvmlDeviceGetCount_v2",
        "DEV_COUNT",
        "SYSTEM_GPU_QUANTITY",
        tier=Tier.SLOW,
    ),
    _device(
        "cuda_driver_version",
        "version",
        "Newest CUDA version that the driver supports: 1000 for each major version plus 10 for "
        "each minor one.",
        "nvmlSystemGetCudaDriverVersion_v2",
        "CUDA_DRIVER_VERSION",
    ),
    _device(
        "cuda_compute_capability",
        "version",
        "Compute capability of CUDA: 65536 for each major version plus the minor one.",
        "nvmlDeviceGetCudaComputeCapability",
        "DEV_CUDA_COMPUTE_CAPABILITY",
        "CUDA_GPU_COMPUTE_CAPABILITY",
    ),
    _device(
        "nvml_index", "number", "Number of the GPU in NVML.", "nvmlDeviceGetIndex", "DEV_NVML_INDEX"
    ),
    _device(
        "minor_number",
        "number",
        "Number of the device file, such as 0 for /dev/nvidia0.",
        "nvmlDeviceGetMinorNumber",
        "DEV_MINOR_NUMBER",
        "DEV_GPU_MINOR_NUMBER",
    ),
    _device(
        "pci_combined_id",
        "number",
        "PCI device id in the upper 16 bits, and PCI vendor id in the lower ones.",
        "nvmlDeviceGetPciInfo_v3",
        "DEV_PCI_COMBINED_ID",
    ),
    _device(
        "pci_subsystem_id",
        "number",
        "PCI id of the board: that of the subsystem and that of its vendor.",
        "nvmlDeviceGetPciInfo_v3",
        "DEV_PCI_SUBSYS_ID",
    ),
    _device(
        "compute_mode",
        "code",
        "Which processes may use the GPU, in DCGM's numbers: 0 all, 1 none, 2 one process.",
        "nvmlDeviceGetComputeMode",
        "DEV_COMPUTE_MODE",
        "DEV_GPU_COMPUTE_MODE",
        tier=Tier.SLOW,
    ),
    _mode(
        "persistence_mode",
        "persistence mode is on",
        "nvmlDeviceGetPersistenceMode",
        "DEV_PERSISTENCE_MODE",
        "DEV_GPU_PERSISTENCE_MODE",
    ),
    _mode("mig_mode", "MIG mode is on", "nvmlDeviceGetMigMode", "DEV_MIG_MODE"),
    _device(
        "mig_max_slices",
        "slices",
        "MIG devices that the GPU can have; 0 while MIG mode is off.",
        "nvmlDeviceGetMaxMigDeviceCount",
        "DEV_MIG_MAX_SLICES",
        tier=Tier.SLOW,
    ),
    _device(
        "virtualization_mode",
        "code",
        "How the GPU is virtualised: 0 not at all, 1 passed through to this machine, 2 a vGPU of "
        "this machine, 3 and 4 a host of vGPUs.",
        "nvmlDeviceGetVirtualizationMode",
        "DEV_VIRTUAL_MODE",
        "DEV_GPU_VIRTUAL_MODE",
    ),
    _mode(
        "autoboost_mode",
        "the clocks are boosted automatically",
        "nvmlDeviceGetAutoBoostedClocksEnabled",
        "DEV_AUTOBOOST",
        "DEV_CLOCKS_AUTOBOOST_MODE",
    ),
    _device(
        "gpm_supported",
        "bool",
        "1 if the GPU has performance monitoring without a profiler (GPM), else 0.",
        "nvmlGpmQueryDeviceSupport",
        "DEV_GPM_SUPPORT",
    ),
    _mode(
        "ecc_mode", "ECC is on", "nvmlDeviceGetFieldValues(1)", "DEV_ECC_CURRENT", "DEV_ECC_MODE"
    ),
    _mode(
        "ecc_mode_pending",
        "ECC will be on after the next reboot",
        "nvmlDeviceGetFieldValues(2)",
        "DEV_ECC_PENDING",
    ),
    _device(
        "inforom_checksum",
        "number",
        "Checksum of the configuration in the inforom, when podgpu opened the GPU.",
        "nvmlDeviceGetInforomConfigurationChecksum",
        "DEV_INFOROM_CONFIG_CHECK",
        "DEV_INFOROM_CHECKSUM",
    ),
    _device(
        "inforom_valid",
        "bool",
        "1 if the checksums of the inforom were right when podgpu opened the GPU, else 0.",
        "nvmlDeviceValidateInforom",
        "DEV_INFOROM_CONFIG_VALID",
        "DEV_INFOROM_VALID",
    ),
    _place("chassis_slot_number", "Slot of the chassis, switches included"),
    _place("tray_index", "Number of the compute tray, switches not included"),
    _place("host_id", "Number of the node in its slot"),
    _place("peer_type", "How the GPU's NVLinks reach other GPUs"),
    _place("module_id", "Number of the GPU in its node"),
)
