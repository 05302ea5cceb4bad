"""The energy counter of a GPU, without impossible readings."""

import ctypes
from typing import Final

from pipeline.model import Instant, Reading
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate
from sources.nvml import codes
from sources.nvml.targets import COUNT, MILLIWATTS, NONE64, GpuReadings, Target

FIELD: Final = "energy_millijoules"


class Energy:
    """Reads the energy counter and returns a total that never decreases.

    The power limit bounds the increase. It is read first, and again before a reading is rejected,
    since it may have been raised. The total starts at the counter's value and increases with the
    counter between possible readings; see `PlausibleCounter`. A reset of the counter does not
    decrease it.

    Args:
        target: the GPU.
    """

    def __init__(self, target: Target) -> None:
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
            self._read_limit()
            rate = energy_rate(self._limit_mw)
        increase = self._growth.read(value, at.mono_ns, rate)
        if self._growth.is_implausible:
            return codes.OUT_OF_RANGE
        self._total = value if increase is None else self._total + increase
        result.append(Reading(self._uuid, FIELD, (), self._total, None, at, 0))
        return codes.OK

    def reset(self) -> None:
        """Start from zero: the GPU was away."""
        self._growth.reset()

    def _read_limit(self) -> None:
        if self._call_limit() == codes.OK and 0 < self._limit_box.value <= MILLIWATTS:
            self._limit_mw = self._limit_box.value
