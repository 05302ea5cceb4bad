"""Counters that podgpu calculates from the driver's values: energy, and bytes over PCIe."""

import ctypes
from dataclasses import replace
from typing import Final

from pipeline.model import NS, Instant, Reading
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate
from sources.nvml import codes
from sources.nvml.gpm import Profiler, Profiling
from sources.nvml.reader_parts import COUNT, MILLIWATTS, NONE64, GpuReadings, ReadTarget

ENERGY: Final = "energy_millijoules"
COUNTERS: Final = {
    "pcie_transmit_bytes_per_second": "pcie_transmitted_bytes",
    "pcie_receive_bytes_per_second": "pcie_received_bytes",
}
"""By field of a rate: the field of the counter that is the sum of the rate over time.

The driver's own counters (field values 197 and 198) have 32 bits: under load they wrap many times a
second, and the number of wraps is unknown. So podgpu adds up the rates of GPU performance
monitoring, each multiplied by the time over which it is the mean.
"""


class Energy:
    """Reads the energy counter and returns a total that never decreases.

    The total increases at most as fast as the power limit allows. The limit is read before the
    first reading, and again before a reading is rejected, since it may have been raised. The total
    starts at the counter's value and increases with the counter between possible readings; see
    `PlausibleCounter`. A reset of the counter does not decrease the total.

    Args:
        target: the GPU.
    """

    def __init__(self, target: ReadTarget) -> None:
        self._uuid = target.uuid
        self._box, self._limit_box = ctypes.c_ulonglong(), ctypes.c_uint()
        name = "nvmlDeviceGetTotalEnergyConsumption"
        self._call = target.bind(name, ctypes.byref(self._box))
        name = "nvmlDeviceGetEnforcedPowerLimit"
        self._call_limit = target.bind(name, ctypes.byref(self._limit_box))
        self._limit_mw: int | None = None
        self._growth = PlausibleCounter()
        self._total = 0

    def read(self, result: GpuReadings, at: Instant) -> int:
        """Read the counter and append the total. A `Reader`."""
        code = self._call()
        value = self._box.value
        if code or value == NONE64:
            return code
        if value > COUNT:
            return codes.OUT_OF_RANGE
        rate = energy_rate(self._limit_mw)
        if self._limit_mw is None or not self._growth.is_plausible(value, at.mono_ns, rate):
            limit_code, limit_mw = self._call_limit(), self._limit_box.value
            if limit_code == codes.OK and 0 < limit_mw <= MILLIWATTS:
                self._limit_mw = limit_mw
            rate = energy_rate(self._limit_mw)
        increase = self._growth.read(value, at.mono_ns, rate)
        if self._growth.is_implausible:
            return codes.OUT_OF_RANGE
        self._total = value if increase is None else self._total + increase
        result.append(Reading(self._uuid, ENERGY, (), self._total, None, at, 0))
        return codes.OK

    def reset(self) -> None:
        """Do not compare the next value with the last one: the GPU was down or has changed."""
        self._growth.reset()


class PcieCounters:
    """Adds up the bytes over PCIe to and from one GPU, starting from the totals in the request.

    Args:
        profiler: reads the rates.
        target: the GPU.
    """

    def __init__(self, profiler: Profiler, target: ReadTarget) -> None:
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
        """Do not count the bytes since the last visit: the GPU was down or has changed."""
        self._profiler.reset()


def pcie_counters(target: ReadTarget) -> PcieCounters | None:
    """Create the counters of a GPU; None if they are not requested or the GPU has no GPM.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    rates = frozenset(rate for rate, field in COUNTERS.items() if target.wants(field))
    rates_target = replace(target, wanted=replace(target.wanted, fields=rates))
    profiler = Profiling(rates_target).profiler(target.uuid) if rates else None
    return None if profiler is None else PcieCounters(profiler, target)
