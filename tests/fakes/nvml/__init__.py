"""A stand-in for the driver's libnvidia-ml.so.1 that plays a scenario file."""

from tests.fakes.nvml.build import build
from tests.fakes.nvml.fake import FakeNvml, reset_pynvml
from tests.fakes.nvml.scenario import (
    ALL_ONES_32,
    ALL_ONES_64,
    NOTHING_SUPPORTED,
    Field,
    Gpu,
    Mig,
    Proc,
    Ramp,
    Sample,
    Scenario,
    h100,
    h100s,
    mig_node,
    mixed,
    slices,
)

__all__ = [
    "ALL_ONES_32",
    "ALL_ONES_64",
    "NOTHING_SUPPORTED",
    "FakeNvml",
    "Field",
    "Gpu",
    "Mig",
    "Proc",
    "Ramp",
    "Sample",
    "Scenario",
    "build",
    "h100",
    "h100s",
    "mig_node",
    "mixed",
    "reset_pynvml",
    "slices",
]
