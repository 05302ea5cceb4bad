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
from sources.nvml.readers import Sheet

COUNTERS: Final = {
    "pcie_transmit_bytes_per_second": "pcie_transmitted_bytes",
    "pcie_receive_bytes_per_second": "pcie_received_bytes",
}
"""The counter that is the sum of a rate."""


class PcieCounters:
    """What went over PCIe to and from one GPU since the first visit.

    Args:
        profiler: tells the rates.
        target: uuid of the GPU, and how long readings are good.
        wanted: names of the fields that somebody asked for.
    """

    def __init__(self, profiler: Profiler, target: tuple[str, int], wanted: frozenset[str]) -> None:
        self._profiler = profiler
        self._target = target
        self._totals = {rate: 0.0 for rate, field in COUNTERS.items() if field in wanted}

    def read(self, sheet: Sheet, at: Instant) -> int:
        """Add what came since the last visit. A `Reader`."""
        uuid, good = self._target
        own = Sheet(uuid, at)
        code = self._profiler.read(own, at)
        sheet.errors += own.errors
        if code not in (codes.OK, codes.UNASKED):
            return code
        for reading in own:
            if reading.window_start is not None:
                spent_ns = reading.at.mono_ns - reading.window_start.mono_ns
                self._totals[reading.field] += reading.value * spent_ns / NS
        for rate, total in self._totals.items():
            sheet.append(Reading(uuid, COUNTERS[rate], (), round(total), None, at, good))
        return code

    def forget(self) -> None:
        """Leave out the time since the last visit: the GPU was away."""
        self._profiler.forget()


def counters(
    nvml: Library,
    handle: Handle,
    target: tuple[str, int],
    wanted: frozenset[str],
    now: Callable[[], Instant],
) -> PcieCounters | None:
    """Make the counters of a GPU; None if nobody asked for them, or it can't tell.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    uuid, good = target
    rates = frozenset(rate for rate, field in COUNTERS.items() if field in wanted)
    profiler = Profiling(nvml, handle, rates, good, now).gpu(uuid) if rates else None
    return None if profiler is None else PcieCounters(profiler, target, wanted)
