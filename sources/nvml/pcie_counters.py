"""Bytes over PCIe as counters.

The driver's own counters (field values 197 and 198) have 32 bits: under load they wrap many times
a second, and nobody can tell how often. So the rates of GPU performance monitoring are summed up,
each over exactly the time that it is the mean of.
"""

from collections.abc import Callable
from typing import Final

from pipeline.model import NS, Instant, Reading
from sources.nvml import codes
from sources.nvml.gpm import Profiler, Profiling
from sources.nvml.library import Handle, Library
from sources.nvml.readers import GpuReadings

COUNTERS: Final = {
    "pcie_transmit_bytes_per_second": "pcie_transmitted_bytes",
    "pcie_receive_bytes_per_second": "pcie_received_bytes",
}
"""The counter that is the sum of a rate."""


class PcieTotals:
    """The bytes of each GPU so far. They outlive the driver and the configuration."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[str, float]] = {}

    def of(self, uuid: str) -> dict[str, float]:
        """Return those of a GPU, by rate, to be added to."""
        return self._totals.setdefault(uuid, {})

    def forget(self, uuid: str) -> None:
        """Drop those of a GPU that was taken out."""
        self._totals.pop(uuid, None)


class PcieCounters:
    """What went over PCIe to and from one GPU while it was visited.

    Args:
        profiler: tells the rates.
        target: uuid of the GPU, and how long readings are good.
        wanted: names of the fields that somebody asked for.
        totals: what went over before, to be added to.
    """

    def __init__(
        self,
        profiler: Profiler,
        target: tuple[str, int],
        wanted: frozenset[str],
        totals: dict[str, float],
    ) -> None:
        self._profiler = profiler
        self._target = target
        self._rates = [rate for rate, field in COUNTERS.items() if field in wanted]
        self._totals = totals

    def read(self, sheet: GpuReadings, at: Instant) -> int:
        """Add what came since the last visit. A `Reader`."""
        uuid, good = self._target
        own = GpuReadings(uuid, at)
        code = self._profiler.read(own, at)
        sheet.errors += own.errors
        if code not in (codes.OK, codes.UNASKED):
            return code
        for reading in own:
            if reading.window_start is not None:
                spent_ns = reading.at.mono_ns - reading.window_start.mono_ns
                before = self._totals.get(reading.field, 0.0)
                self._totals[reading.field] = before + reading.value * spent_ns / NS
        for rate in self._rates:
            total = round(self._totals.get(rate, 0.0))
            sheet.append(Reading(uuid, COUNTERS[rate], (), total, None, at, good))
        return code

    def forget(self) -> None:
        """Leave out the time since the last visit: the GPU was away."""
        self._profiler.reset()


def counters(
    nvml: Library,
    handle: Handle,
    target: tuple[str, int],
    wanted: frozenset[str],
    *,
    totals: PcieTotals | None,
    now: Callable[[], Instant],
) -> PcieCounters | None:
    """Make the counters of a GPU; None if nobody asked for them, or it can't tell.

    They go on from `totals`, or begin at 0 where there are none.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    uuid, good = target
    rates = frozenset(rate for rate, field in COUNTERS.items() if field in wanted)
    profiler = Profiling(nvml, handle, rates, good, now).gpu(uuid) if rates else None
    if profiler is None:
        return None
    return PcieCounters(profiler, target, wanted, {} if totals is None else totals.of(uuid))
