"""The energy counter of a GPU, without the readings that can't be true."""

import ctypes
from typing import Final

from pipeline.model import Instant, Reading
from pipeline.usage.monotonic_counter import PlausibleCounter, energy_rate
from sources.nvml import codes
from sources.nvml.library import Handle, Library
from sources.nvml.readers import NONE64, GpuReadings

FIELD: Final = "energy_millijoules"
_MOST_MJ: Final = 1 << 62
_LIMIT_MOST_MW: Final = 100_000_000


class Energy:
    """Reads the counter again and again.

    Its growth is bounded by the power limit. That is asked for at first, and again before a reading
    is rejected: it may have been raised. The total begins where the counter stands, and grows as
    the counter does between readings that can be true: see `PlausibleCounter`. So it doesn't fall
    where the counter was reset.

    Args:
        nvml: the library.
        handle: of the GPU.
        uuid: of the GPU.
    """

    def __init__(self, nvml: Library, handle: Handle, uuid: str) -> None:
        self._uuid = uuid
        self._box, self._limit_box = ctypes.c_ulonglong(), ctypes.c_uint()
        name = "nvmlDeviceGetTotalEnergyConsumption"
        self._call = nvml.bind(name, handle, ctypes.byref(self._box))
        name = "nvmlDeviceGetEnforcedPowerLimit"
        self._ask_limit = nvml.bind(name, handle, ctypes.byref(self._limit_box))
        self._limit_mw: int | None = None
        self._growth = PlausibleCounter()
        self._total = 0

    def read(self, sheet: GpuReadings, at: Instant) -> int:
        """Read the counter; append the total. A `Reader`."""
        code = codes.FUNCTION_NOT_FOUND if self._call is None else self._call()
        value = self._box.value
        if code or value == NONE64:
            return code
        if value > _MOST_MJ:
            return codes.OUT_OF_RANGE
        rate = energy_rate(self._limit_mw)
        if self._limit_mw is None or not self._growth.is_plausible(value, at.mono_ns, rate):
            self._read_limit()
            rate = energy_rate(self._limit_mw)
        grown = self._growth.read(value, at.mono_ns, rate)
        if self._growth.is_implausible:
            return codes.OUT_OF_RANGE
        self._total = value if grown is None else self._total + grown
        sheet.append(Reading(self._uuid, FIELD, (), self._total, None, at, 0))
        return codes.OK

    def reset(self) -> None:
        """Start anew: the GPU was away."""
        self._growth.reset()

    def _read_limit(self) -> None:
        if self._ask_limit is not None and self._ask_limit() == codes.OK:
            found = self._limit_box.value
            if 0 < found <= _LIMIT_MOST_MW:
                self._limit_mw = found
