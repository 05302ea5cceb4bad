"""Counters of bytes over PCIe.

The driver's own counters (field values 197 and 198) have 32 bits: under load they wrap many times a
second, and the number of wraps is unknown. So podgpu adds up the rates of GPU performance
monitoring, each multiplied by the time over which it is the mean.
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
"""The counter that is the sum over time of each rate."""


class PcieTotals:
    """The totals of each GPU. They outlive reloads of the driver and of the configuration."""

    def __init__(self) -> None:
        self._totals: dict[str, dict[str, float]] = {}

    def of(self, uuid: str) -> dict[str, float]:
        """Return the totals of a GPU by rate; the caller adds to them."""
        return self._totals.setdefault(uuid, {})

    def forget(self, uuid: str) -> None:
        """Drop the totals of a GPU that was removed."""
        self._totals.pop(uuid, None)


class PcieCounters:
    """Adds up the bytes over PCIe to and from one GPU.

    Args:
        profiler: reads the rates.
        target: uuid of the GPU, and how long readings are valid.
        wanted: names of the requested fields.
        totals: the totals so far, which are added to.
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

    def read(self, result: GpuReadings, at: Instant) -> int:
        """Add the bytes since the last visit, and append the totals. A `Reader`."""
        uuid, valid_ns = self._target
        gpm_result = GpuReadings(uuid, at)
        code = self._profiler.read(gpm_result, at)
        result.errors += gpm_result.errors
        if code not in (codes.OK, codes.NOT_CALLED):
            return code
        for reading in gpm_result:
            if reading.window_start is not None:
                elapsed_ns = reading.at.mono_ns - reading.window_start.mono_ns
                before = self._totals.get(reading.field, 0.0)
                self._totals[reading.field] = before + reading.value * elapsed_ns / NS
        for rate in self._rates:
            total = round(self._totals.get(rate, 0.0))
            result.append(Reading(uuid, COUNTERS[rate], (), total, None, at, valid_ns))
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
    """Create the counters of a GPU; None if they are not requested or GPM is not supported.

    They continue from `totals`, or start at 0 without it.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    uuid, valid_ns = target
    rates = frozenset(rate for rate, field in COUNTERS.items() if field in wanted)
    profiler = Profiling(nvml, handle, rates, valid_ns, now).gpu(uuid) if rates else None
    if profiler is None:
        return None
    return PcieCounters(profiler, target, wanted, {} if totals is None else totals.of(uuid))
