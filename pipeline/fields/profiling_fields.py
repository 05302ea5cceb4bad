"""Fields of GPU performance monitoring (GPM), which DCGM calls profiling."""

from typing import Final

from pipeline.fields.field import Field, Group, Tier


def _ratio(
    name: str,
    gpm: int,
    dcgm: str,
    renamed: str,
    about: str,
    *,
    dcgm_1x: str = "",
    group: Group = "profiling",
) -> Field:
    return Field(
        name,
        "gauge",
        "ratio",
        f"{about}, from 0 to 1, over the time between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        Tier.FAST,
        group=group,
        dcgm=f"DCGM_FI_PROF_{dcgm}",
        aliases=(f"DCGM_FI_PROF_{renamed}_RATIO",),
        dcgm_1x=dcgm_1x,
        mig=True,
        since="hopper",
    )


def _rate(
    name: str, gpm: int, dcgm: str, about: str, *, mig: bool, group: Group = "profiling"
) -> Field:
    return Field(
        name,
        "gauge",
        "bytes/s",
        f"{about}, in bytes per second over the time between two samples.",
        f"nvmlGpmMetricsGet({gpm})",
        Tier.FAST,
        group=group,
        dcgm=f"DCGM_FI_PROF_{dcgm}",
        mig=mig,
        since="hopper",
    )


_ENGINES: Final = (("nvdec", 30, 8), ("nvjpg", 40, 8), ("nvofa", 50, 2))
"""Name, GPM id of the first engine, and number of engines."""

PROFILING: tuple[Field, ...] = (
    _ratio(
        "graphics_engine_active_ratio",
        1,
        "GR_ENGINE_ACTIVE",
        "GR_ENGINE_UTIL",
        "Fraction of time in which a graphics or compute context was busy",
        dcgm_1x="dcgm_fi_prof_gr_engine_active",
        group="standard",
    ),
    _ratio(
        "sm_active_ratio",
        2,
        "SM_ACTIVE",
        "SM_UTIL",
        "Fraction of time in which a multiprocessor had a warp, as a mean over all",
        dcgm_1x="dcgm_fi_prof_sm_active",
    ),
    _ratio(
        "sm_occupancy_ratio",
        3,
        "SM_OCCUPANCY",
        "SM_OCCUPANCY",
        "Resident warps as a fraction of the maximum of the multiprocessors",
        dcgm_1x="dcgm_fi_prof_sm_occupancy",
    ),
    _ratio(
        "tensor_active_ratio",
        5,
        "PIPE_TENSOR_ACTIVE",
        "TENSOR_UTIL",
        "Fraction of time in which the tensor cores were busy",
        dcgm_1x="dcgm_fi_prof_pipe_tensor_active",
        group="standard",
    ),
    _ratio(
        "dram_active_ratio",
        10,
        "DRAM_ACTIVE",
        "DRAM_UTIL",
        "Fraction of time in which device memory was sending or receiving",
        dcgm_1x="dcgm_fi_prof_dram_active",
        group="standard",
    ),
    _ratio(
        "fp64_active_ratio",
        11,
        "PIPE_FP64_ACTIVE",
        "FP64_UTIL",
        "Fraction of time in which the FP64 pipes were busy",
    ),
    _ratio(
        "fp32_active_ratio",
        12,
        "PIPE_FP32_ACTIVE",
        "FP32_UTIL",
        "Fraction of time in which the FP32 pipes were busy",
    ),
    _ratio(
        "fp16_active_ratio",
        13,
        "PIPE_FP16_ACTIVE",
        "FP16_UTIL",
        "Fraction of time in which the FP16 pipes were busy",
    ),
    _ratio(
        "integer_active_ratio",
        4,
        "PIPE_INT_ACTIVE",
        "INT_UTIL",
        "Fraction of time in which the integer pipes were busy",
    ),
    _ratio(
        "tensor_hmma_active_ratio",
        7,
        "PIPE_TENSOR_HMMA_ACTIVE",
        "HMMA_UTIL",
        "Fraction of time in which the tensor cores multiplied half-precision numbers",
    ),
    _ratio(
        "tensor_imma_active_ratio",
        9,
        "PIPE_TENSOR_IMMA_ACTIVE",
        "IMMA_UTIL",
        "Fraction of time in which the tensor cores multiplied integers",
    ),
    _ratio(
        "tensor_dfma_active_ratio",
        6,
        "PIPE_TENSOR_DFMA_ACTIVE",
        "DFMA_UTIL",
        "Fraction of time in which the tensor cores multiplied double-precision numbers",
    ),
    _rate(
        "pcie_transmit_bytes_per_second",
        20,
        "PCIE_TX_BYTES",
        "Bytes sent over PCIe, headers included",
        mig=False,
        group="standard",
    ),
    _rate(
        "pcie_receive_bytes_per_second",
        21,
        "PCIE_RX_BYTES",
        "Bytes received over PCIe, headers included",
        mig=False,
        group="standard",
    ),
    _rate(
        "nvlink_transmit_bytes_per_second",
        61,
        "NVLINK_TX_BYTES",
        "Bytes sent over all NVLinks",
        mig=False,
    ),
    _rate(
        "nvlink_receive_bytes_per_second",
        60,
        "NVLINK_RX_BYTES",
        "Bytes received over all NVLinks",
        mig=False,
    ),
    *(
        _ratio(
            f"{engine}{number}_active_ratio",
            first + number,
            f"{engine.upper()}{number}_ACTIVE",
            f"{engine.upper()}_UTIL_{number}",
            f"Fraction of time in which {engine.upper()} engine {number} was busy",
        )
        for engine, first, count in _ENGINES
        for number in range(count)
    ),
)
