"""Counters of bytes over PCIe.

The driver's own counters (field values 197 and 198) have 32 bits: under load they wrap many times a
second, and the number of wraps is unknown. So podgpu adds up the rates of GPU performance
monitoring, each multiplied by the time over which it is the mean.
"""

from dataclasses import replace
from typing import Final

from pipeline.model import NS, Instant
from sources.nvml import codes
from sources.nvml.gpm import Profiler, Profiling
from sources.nvml.targets import COUNT, GpuReadings, Target

COUNTERS: Final = {
    "pcie_transmit_bytes_per_second": "pcie_transmitted_bytes",
    "pcie_receive_bytes_per_second": "pcie_received_bytes",
}
"""The counter that is the sum over time of each rate."""


class PcieCounters:
    """Adds up the bytes over PCIe to and from one GPU, from the totals of the request on.

    Args:
        profiler: reads the rates.
        target: the GPU.
    """

    def __init__(self, profiler: Profiler, target: Target) -> None:
        self._profiler = profiler
        self._outputs = {
            rate: target.output(field, COUNT)
            for rate, field in COUNTERS.items()
            if target.wants(field)
        }
        self._totals = target.wanted.pcie_totals.setdefault(target.uuid, {})

    def read(self, result: GpuReadings, at: Instant) -> int:
        """Add the bytes since the last visit, and append the totals. A `Reader`."""
        gpm_result = GpuReadings(result.uuid, at)
        code = self._profiler.read(gpm_result, at)
        result.errors += gpm_result.errors
        if code not in (codes.OK, codes.NOT_CALLED):
            return code
        for reading in gpm_result:
            if reading.window_start is not None:
                elapsed_ns = reading.at.mono_ns - reading.window_start.mono_ns
                before = self._totals.get(reading.field, 0.0)
                self._totals[reading.field] = before + reading.value * elapsed_ns / NS
        for rate, output in self._outputs.items():
            output.add(result, at, round(self._totals.get(rate, 0.0)))
        return code

    def reset(self) -> None:
        """Leave out the time since the last visit: the GPU was away."""
        self._profiler.reset()


def counters(target: Target) -> PcieCounters | None:
    """Create the counters of a GPU; None if they are not requested or GPM is not supported.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    rates = frozenset(rate for rate, field in COUNTERS.items() if target.wants(field))
    rates_target = replace(target, wanted=replace(target.wanted, fields=rates))
    profiler = Profiling(rates_target).gpu() if rates else None
    return None if profiler is None else PcieCounters(profiler, target)
