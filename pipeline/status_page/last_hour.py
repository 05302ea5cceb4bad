"""The last hour of each GPU: utilisation, memory and power, in rings of a fixed size.

A GPU takes about 3.4 kB, and at most `MOST_GPUS` GPUs have a ring. Times are of the monotonic
clock, so that a change of the wall clock neither moves nor loses points.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import Final

from pipeline.model import NS, Layout, Snapshot

STEP_NS: Final = 30 * NS
"""Length of a step. A point is the mean of the snapshots in its step."""

POINTS: Final = 120
"""Number of steps: one hour."""

MOST_GPUS: Final = 1024
"""Maximum number of GPUs with a ring."""

_FIELDS: Final[Mapping[str, tuple[int, float]]] = {
    "gpu_utilization_percent": (0, 1),
    "graphics_engine_active_ratio": (0, 100),
    "memory_used_bytes": (1, 1),
    "power_watts": (2, 1),
}
"""The line of the ring, and the factor of the value, by field. If two fields have the same line,
the first one is used where it is read."""

_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class HourOfGpu:
    """The last hour of a GPU, the oldest step first; a value is None if nothing was read.

    Attributes:
        utilization_percent: mean utilisation of each step.
        memory_used_bytes: mean of the memory in use.
        power_watts: mean power draw.
    """

    utilization_percent: tuple[float | None, ...]
    memory_used_bytes: tuple[float | None, ...]
    power_watts: tuple[float | None, ...]


class _Ring:
    """The values of one GPU. The place of a step is its number modulo `POINTS`."""

    __slots__ = ("counts", "lines", "since")

    def __init__(self, step: int) -> None:
        self.since = step
        self.counts = [0] * _LINES
        self.lines = tuple(array("d", [nan] * POINTS) for _ in range(_LINES))

    def begin(self, step: int, skipped: int) -> None:
        """Begin a step, after clearing it and the steps that had no snapshot."""
        self.counts = [0] * _LINES
        for each in range(step - min(skipped, POINTS - 1), step + 1):
            for line in self.lines:
                line[each % POINTS] = nan

    def add(self, line: int, step: int, value: float) -> None:
        place = step % POINTS
        count = self.counts[line] = self.counts[line] + 1
        before = self.lines[line][place] if count > 1 else 0.0
        self.lines[line][place] = before + (value - before) / count

    def hour(self, step: int) -> HourOfGpu:
        first = max(self.since, step - POINTS + 1)
        return HourOfGpu(
            *(
                tuple(
                    None if isnan(value := line[each % POINTS]) else value
                    for each in range(first, step + 1)
                )
                for line in self.lines
            )
        )


class LastHour:
    """Collects the last hour of each GPU from snapshots."""

    def __init__(self) -> None:
        self._step = -1
        self._rings: dict[str, _Ring] = {}
        self._layout: Layout | None = None
        self._places: Sequence[tuple[int, str, int, float]] = ()

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot. One that is older than the current step is ignored."""
        step = snapshot.at.mono_ns // STEP_NS
        if step < self._step:
            return
        if step > self._step:
            skipped = step - self._step - 1
            for each in self._rings.values():
                each.begin(step, skipped)
            self._step = step
        if snapshot.layout is not self._layout:
            self._layout = snapshot.layout
            self._places = _places(snapshot.layout)
            present = {one.device.gpu_uuid for one in snapshot.layout.attributions.values()}
            self._rings = {uuid: ring for uuid, ring in self._rings.items() if uuid in present}
        readings, rings = snapshot.readings, self._rings
        for at, uuid, line, factor in self._places:
            value = readings[at].value
            ring = rings.get(uuid)
            if ring is None:
                if len(rings) >= MOST_GPUS:
                    continue
                ring = rings[uuid] = _Ring(step)
            try:
                if isfinite(number := value * factor):
                    ring.add(line, step, number)
            except OverflowError:  # an integer that is too large for a float
                continue

    def hours(self) -> Mapping[str, HourOfGpu]:
        """Return a copy of the last hour of each GPU, by UUID."""
        return {uuid: ring.hour(self._step) for uuid, ring in self._rings.items()}


def _places(layout: Layout) -> Sequence[tuple[int, str, int, float]]:
    """Return the index of each series, the UUID of its GPU, its line, and its factor."""
    found: dict[tuple[str, int], tuple[int, float]] = {}
    order = list(_FIELDS)
    chosen: dict[tuple[str, int], int] = {}
    for at, series in enumerate(layout.series):
        if series.field not in _FIELDS or series.attrs:
            continue
        device = series.attribution.device
        if device.mig is not None:
            continue
        line, factor = _FIELDS[series.field]
        key, rank = (device.uuid, line), order.index(series.field)
        if key not in chosen or rank < chosen[key]:
            chosen[key], found[key] = rank, (at, factor)
    return [(at, uuid, line, factor) for (uuid, line), (at, factor) in found.items()]
