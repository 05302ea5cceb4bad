"""Readings of a simulated GPU that follow its load: power, temperature, clocks, energy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.demo.cast import Card, Work
from tests.fakes.nvml import Gpm, Ramp, Sampled
from tests.fakes.nvml.profiles import MIB
from tests.fakes.nvml.scenario import Number

RESERVED: Final = 503_316_480
"""Memory that the driver keeps for itself, in bytes."""

_IDLE_CLOCK, _CLOCK, _HOT_CLOCK = 345, 1980, 1155
_NONE, _IDLE, _THERMAL = 0, 0x1, 0x20
_LAG_S: Final = 9.0
"""How slowly the temperature follows the power: the time constant, in seconds."""

_PERIODS: Final = (7.3, 17.9, 41.0)
"""Periods of the load in seconds. They have no common multiple in a recording, so that the load
looks irregular, and is the same in every run."""


def wave(seconds: float, seed: int) -> float:
    """Return a smooth irregular number between -1 and 1."""
    turns = (seconds / period + 0.37 * seed * (n + 1) for n, period in enumerate(_PERIODS))
    return sum(math.sin(2 * math.pi * turn) for turn in turns) / len(_PERIODS)


def percent(work: Work, seconds: float, seed: int) -> float:
    """Return the utilisation by one process at a time, in percent."""
    if not work.busy:
        return 0.0
    return min(max(work.busy + work.swing * wave(seconds, seed), 1.0), 99.0)


@dataclass(slots=True)
class Board:
    """The readings of one GPU.

    Attributes:
        card: the GPU.
        energy: millijoules since the driver was loaded, at the last update.
    """

    card: Card
    seed: int
    energy: float = 0.0
    _temperature: float = 0.0
    _at: float = field(default=0.0)

    def __post_init__(self) -> None:
        self.energy = (4 + self.seed) * 1e9
        self._temperature = 0.0

    def readings(
        self, seconds: float, load: float, memory: int, *, hot: bool = False
    ) -> tuple[Mapping[str, Number | None], Mapping[int, Sampled | None], Mapping[int, Gpm | None]]:
        """Return values, sampled values and profiling metrics at a time.

        Args:
            seconds: the time, after the scenario's start.
            load: utilisation of the whole GPU in percent.
            memory: memory of all processes, in bytes.
            hot: whether the GPU is throttled because of its temperature.
        """
        model = self.card.model
        noise = wave(seconds * 3.1, self.seed + 5)
        power = model.idle + (model.limit - model.idle) * 0.93 * (load / 100) ** 0.8 + 3 * noise
        power = min(power * (0.62 if hot else 1.0), model.limit)
        ideal = 31 + self.card.warm + 38 * power / model.limit + (21 if hot else 0)
        passed, self._at = seconds - self._at, seconds
        # The first reading is that of a GPU that has had this load for long.
        near = 1 - math.exp(-passed / _LAG_S) if self._temperature else 1.0
        self._temperature += (ideal - self._temperature) * near
        milliwatts = round(power * 1000)
        clock = _HOT_CLOCK if hot else _CLOCK if load else _IDLE_CLOCK
        remapped = int(self.card.pending_remap)
        values: dict[str, Number | None] = {
            "memory_total": model.memory,
            "memory_reserved": RESERVED,
            "memory_used": RESERVED + memory,
            "util_gpu": round(load),
            "util_memory": round(load * 0.55),
            "temperature": round(self._temperature),
            "memory_temperature": round(self._temperature + 4 + load / 25),
            "margin_temperature": round(89 - self._temperature),
            "clock_0": clock,
            "clock_1": clock,
            "power_usage": milliwatts,
            "power_limit": round(model.limit * 1000),
            "energy": Ramp(round(self.energy - milliwatts * seconds), milliwatts),
            "clocks_event_reasons": _THERMAL if hot else _NONE if load else _IDLE,
            "pcie_throughput_0": round(2000 + 9000 * load),
            "pcie_throughput_1": round(900 + 4000 * load),
            "remapped_pending": remapped,
            "remapped_uncorrectable": remapped,
            "ecc_1_1": remapped,
            "ecc_1_1_2": remapped,
            "recovery_action": remapped,
        }
        if self.card.instances:
            values |= dict.fromkeys(("util_gpu", "util_memory"))
        self.energy += milliwatts * passed
        rings: dict[int, Sampled | None] = {
            0: Sampled(milliwatts, (milliwatts * 1.04, 1.0, 0.3), period=0.02, room=120),
            1: Sampled(round(load), (min(round(load * 1.2), 100), 2.0, 0.6)),
            2: Sampled(round(load * 0.55)),
        }
        if self.card.instances:
            rings = {0: rings[0]}
        return values, rings, profiling(load)


def profiling(load: float) -> Mapping[int, Gpm | None]:
    """Return the profiling metrics of a GPU or an instance, by its utilisation in percent."""
    shares = {1: 0.97, 2: 0.82, 3: 0.34, 5: 0.46, 7: 0.46, 10: 0.39, 12: 0.12, 13: 0.05}
    metrics: dict[int, Gpm | None] = {
        number: Gpm(round(load * share, 2)) for number, share in shares.items()
    }
    metrics[20], metrics[21] = Gpm(round(8 + load * 9)), Gpm(round(3 + load * 4))
    return metrics


def used(works: Sequence[Work]) -> int:
    """Return the memory of all processes, in whole MiB, in bytes."""
    return sum(work.memory for work in works) // MIB * MIB
