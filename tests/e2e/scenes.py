"""Simulated nodes on which each GPU has different readings."""

from tests.fakes.nvml import Gpm, Ramp, Scenario, h100, slices
from tests.fakes.nvml.profiles import MIB, UNSUPPORTED_WITH_MIG, VALUES

WATTS = 700
ALL = ["0", "1", "2", "3"]

ENGINE, TENSOR = 1, 5
"""Numbers of GPM metrics."""


def distinct() -> Scenario:
    """Return four GPUs; the readings of each follow from its index."""
    return Scenario(
        gpus=[
            h100(
                at,
                values={
                    "temperature": 41 + at,
                    "power_usage": 100_500 + 1000 * at,
                    "clock_1": 1100 + at,
                    "util_gpu": 10 * (at + 1),
                    "dec_util": 3 * at,
                    "memory_used": VALUES["memory_reserved"] + (1024 + at) * MIB,
                    "energy": Ramp(5_000_000_000 + at, WATTS * 1000),
                },
                gpm={ENGINE: Gpm(25.0 * at), TENSOR: Gpm(12.5 * (at + 1))},
            )
            for at in range(4)
        ]
    )


def mixed() -> Scenario:
    """Return the same node with MIG instances on two of the GPUs."""
    cut = {1: slices(1, "3g.40gb", "2g.20gb", "1g.10gb"), 3: slices(3, "7g.80gb")}
    scenario = distinct()
    for place, instances in cut.items():
        values = {
            key: value
            for key, value in scenario.gpus[place].values.items()
            if key not in UNSUPPORTED_WITH_MIG
        }
        scenario = scenario.with_gpu(place, mig=instances, values=values)
    return scenario
