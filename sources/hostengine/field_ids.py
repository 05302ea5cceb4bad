"""DCGM's ids of the fields that podgpu reads."""

from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.fields import CATALOGUE, Field, FieldPlan

DRIVER_VERSION: Final = 1
NAME: Final = 50
INDEX: Final = 52
UUID: Final = 54
MINOR: Final = 55
PCI_BUS_ID: Final = 57
COMPUTE_CAPABILITY: Final = 63

_PROFILING: Final = "DCGM_FI_PROF_"
_ORDER: Final = (
    "GR_ENGINE_ACTIVE",
    "SM_ACTIVE",
    "SM_OCCUPANCY",
    "PIPE_TENSOR_ACTIVE",
    "DRAM_ACTIVE",
    "PIPE_FP64_ACTIVE",
    "PIPE_FP32_ACTIVE",
    "PIPE_FP16_ACTIVE",
    "PCIE_TX_BYTES",
    "PCIE_RX_BYTES",
    "NVLINK_TX_BYTES",
    "NVLINK_RX_BYTES",
    "PIPE_TENSOR_IMMA_ACTIVE",
    "PIPE_TENSOR_HMMA_ACTIVE",
    "PIPE_TENSOR_DFMA_ACTIVE",
    "PIPE_INT_ACTIVE",
    *(f"NVDEC{engine}_ACTIVE" for engine in range(8)),
    *(f"NVJPG{engine}_ACTIVE" for engine in range(8)),
    *(f"NVOFA{engine}_ACTIVE" for engine in range(2)),
)
_IDS: Final = {f"{_PROFILING}{name}": number for number, name in enumerate(_ORDER, 1001)}

PROFILING: Final[Mapping[int, Field]] = {
    _IDS[field.dcgm]: field for field in CATALOGUE if field.dcgm in _IDS
}
"""Fields by DCGM's id."""


def wanted(plan: FieldPlan) -> Iterable[int]:
    """Return the ids of the requested profiling fields."""
    return [number for number, field in PROFILING.items() if field.name in plan]
