"""The last hour of each device: utilisation, memory and power, in rings of a fixed size.

A GPU takes about 3.4 kB, a MIG instance, which has no power, 2.4 kB. At most `MOST_RINGS` devices
have a ring. Times are of the monotonic clock, so that a change of the wall clock neither moves nor
loses points.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import Final, NamedTuple

from pipeline.model import NS, Layout, Snapshot

STEP_NS: Final = 30 * NS
"""Length of a step. A point is the mean of the snapshots in its step."""

POINTS: Final = 120
"""Number of steps: one hour."""

MOST_RINGS: Final = 1024
"""Maximum number of GPUs and MIG instances with a ring."""

_FIELDS: Final[Mapping[str, tuple[int, float]]] = {
    "gpu_utilization_percent": (0, 1),
    "graphics_engine_active_ratio": (0, 100),
    "memory_used_bytes": (1, 1),
    "power_watts": (2, 1),
}
"""The line of the ring, and the factor of the value, by field. If two fields have the same line,
the first one is used where it is read."""

_GPU_LINES: Final = 3
_MIG_LINES: Final = 2


@dataclass(frozen=True, slots=True)
class HourOfDevice:
    """The last hour of a device, the oldest step first; a value is None if nothing was read.

    Attributes:
        utilization_percent: mean utilisation of each step.
        memory_used_bytes: mean of the memory in use.
        power_watts: mean power draw; None for a MIG instance.
    """

    utilization_percent: tuple[float | None, ...]
    memory_used_bytes: tuple[float | None, ...]
    power_watts: tuple[float | None, ...] | None


class _Ring:
    """The values of one device. The place of a step is its number modulo `POINTS`."""

    __slots__ = ("counts", "lines", "since")

    def __init__(self, step: int, lines: int) -> None:
        self.since = step
        self.counts = [0] * lines
        self.lines = tuple(array("d", [nan] * POINTS) for _ in range(lines))

    def begin(self, step: int, skipped: int) -> None:
        """Begin a step, after clearing it and the steps that had no snapshot."""
        self.counts = [0] * len(self.lines)
        for each in range(step - min(skipped, POINTS - 1), step + 1):
            for line in self.lines:
                line[each % POINTS] = nan

    def add(self, line: int, step: int, value: float) -> None:
        place = step % POINTS
        count = self.counts[line] = self.counts[line] + 1
        before = self.lines[line][place] if count > 1 else 0.0
        self.lines[line][place] = before + (value - before) / count

    def hour(self, step: int) -> HourOfDevice:
        first = max(self.since, step - POINTS + 1)
        busy, memory, *power = (
            tuple(
                None if isnan(value := line[each % POINTS]) else value
                for each in range(first, step + 1)
            )
            for line in self.lines
        )
        return HourOfDevice(busy, memory, power[0] if power else None)


class LastHour:
    """Collects the last hour of each device from snapshots."""

    def __init__(self) -> None:
        self._step = -1
        self._rings: dict[str, _Ring] = {}
        self._layout: Layout | None = None
        self._places: Sequence[_Place] = ()

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
            found = snapshot.layout.attributions.values()
            present = {uuid for one in found for uuid in (one.device.uuid, one.device.gpu_uuid)}
            self._rings = {uuid: ring for uuid, ring in self._rings.items() if uuid in present}
        readings, rings = snapshot.readings, self._rings
        for place in self._places:
            value = readings[place.at].value
            ring = rings.get(place.uuid)
            if ring is None:
                if len(rings) >= MOST_RINGS:
                    continue
                ring = rings[place.uuid] = _Ring(step, place.lines)
            try:
                if isfinite(number := value * place.factor):
                    ring.add(place.line, step, number)
            except OverflowError:  # an integer that is too large for a float
                continue

    def hours(self) -> Mapping[str, HourOfDevice]:
        """Return a copy of the last hour of each device, by UUID."""
        return {uuid: ring.hour(self._step) for uuid, ring in self._rings.items()}


class _Place(NamedTuple):
    """Where a reading belongs.

    Attributes:
        at: index of the reading in the snapshot.
        uuid: the device.
        lines: number of lines of its ring.
        line: the line of the ring.
        factor: factor of the value.
    """

    at: int
    uuid: str
    lines: int
    line: int
    factor: float


def _places(layout: Layout) -> Sequence[_Place]:
    """Return the place of each reading that is kept; GPUs first, so that they get a ring first."""
    order = list(_FIELDS)
    chosen: dict[tuple[str, int], tuple[int, _Place]] = {}
    for at, series in enumerate(layout.series):
        if series.field not in _FIELDS or series.attrs:
            continue
        device = series.attribution.device
        lines = _GPU_LINES if device.mig is None else _MIG_LINES
        line, factor = _FIELDS[series.field]
        key, rank = (device.uuid, line), order.index(series.field)
        if line < lines and (key not in chosen or rank < chosen[key][0]):
            chosen[key] = rank, _Place(at, device.uuid, lines, line, factor)
    return sorted((place for _, place in chosen.values()), key=lambda one: -one.lines)
