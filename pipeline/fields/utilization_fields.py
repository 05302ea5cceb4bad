"""Fields of utilisation, processes and licences."""

from pipeline.fields.field import Field, Tier


def _video(unit: str) -> Field:
    short = unit[:3]
    return Field(
        f"{unit}_utilization_percent",
        "percent",
        f"Utilisation of the video {unit}s, in percent.",
        f"nvmlDeviceGet{unit.capitalize()}Utilization",
        tier=Tier.FAST,
        dcgm=f"DCGM_FI_DEV_{short.upper()}_UTIL",
        dcgm_base=f"DCGM_FI_DEV_{short.upper()}_UTIL_RATIO",
        dcgm_1x=f"dcgm_{short}_utilization",
        otel="hw.gpu.utilization",
        otel_attrs=(("hw.gpu.task", unit),),
        otel_divisor=100,
    )


WORK: tuple[Field, ...] = (
    Field(
        "gpu_utilization_percent",
        "percent",
        "Part of the driver's last sample period in which a kernel ran, in percent.",
        "nvmlDeviceGetUtilizationRates",
        tier=Tier.FAST,
        dcgm="DCGM_FI_DEV_GPU_UTIL",
        # In DCGM 4.6, this was another name of the value in percent.
        dcgm_base="DCGM_FI_DEV_GPU_UTIL_RATIO",
        dcgm_1x="dcgm_gpu_utilization",
        otel="hw.gpu.utilization",
        otel_attrs=(("hw.gpu.task", "general"),),
        otel_divisor=100,
    ),
    Field(
        "memory_copy_utilization_percent",
        "percent",
        "Part of the driver's last sample period in which device memory was read or written, in "
        "percent.",
        "nvmlDeviceGetUtilizationRates",
        tier=Tier.FAST,
        dcgm="DCGM_FI_DEV_MEM_COPY_UTIL",
        dcgm_base="DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        dcgm_1x="dcgm_mem_copy_utilization",
    ),
    _video("encoder"),
    _video("decoder"),
    Field(
        "processes",
        "processes",
        "Processes with a context on the device, by kind.",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        tier=Tier.FAST,
        group="own",
        attrs=("kind",),
        mig=True,
    ),
    Field(
        "process_memory_used_bytes",
        "bytes",
        "Device memory of one process, by its pid on the host; no sample if the driver does not "
        "report it.",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        tier=Tier.FAST,
        group="own",
        attrs=("kind", "pid"),
        mig=True,
    ),
    Field(
        "vgpu_license_status",
        "bool",
        "1 while a vGPU licence is active, 0 while it is not or none is needed.",
        "nvmlDeviceGetGridLicensableFeatures_v4",
        dcgm="DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    ),
)
