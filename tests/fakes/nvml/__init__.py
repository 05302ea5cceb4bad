"""A fake of the driver's library libnvidia-ml.so.1 that plays a scenario file."""

from tests.fakes.nvml.activity import ALL_ONES_64, Gpm, Load, Proc, Sample
from tests.fakes.nvml.build import build
from tests.fakes.nvml.cards import a100, linked, t4
from tests.fakes.nvml.fake import FakeNvml, reset_pynvml
from tests.fakes.nvml.nodes import h100, h100s, mig_node, mixed, slices
from tests.fakes.nvml.scenario import (
    ALL_ONES_32,
    NOTHING_SUPPORTED,
    Field,
    Gpu,
    Mig,
    Ramp,
    Sampled,
    Scenario,
)

__all__ = [
    "ALL_ONES_32",
    "ALL_ONES_64",
    "NOTHING_SUPPORTED",
    "FakeNvml",
    "Field",
    "Gpm",
    "Gpu",
    "Load",
    "Mig",
    "Proc",
    "Ramp",
    "Sample",
    "Sampled",
    "Scenario",
    "a100",
    "build",
    "h100",
    "h100s",
    "linked",
    "mig_node",
    "mixed",
    "reset_pynvml",
    "slices",
    "t4",
]
