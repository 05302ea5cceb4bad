"""Limits and state of a board: temperature limits, fans, licence."""

import ctypes
from typing import Final

from pipeline.model import Instant
from sources.nvml import codes, library
from sources.nvml.targets import NONE32, GpuReadings, Reader, Target

THRESHOLDS: Final = {"temperature_shutdown_celsius": 0, "temperature_slowdown_celsius": 1}
"""NVML's number of each threshold."""

_CELSIUS: Final = 250
_FAN: Final = 250  # percent; a fan may exceed its rated speed


def threshold(target: Target, field: str) -> Reader:
    """Create a reader of a temperature limit; calls once, since it takes 2 ms and is constant."""
    box, which = ctypes.c_uint(), ctypes.c_int(THRESHOLDS[field])
    call = target.bind("nvmlDeviceGetTemperatureThreshold", which, ctypes.byref(box))
    output = target.output(field, _CELSIUS)
    is_known = False

    def read(result: GpuReadings, at: Instant) -> int:
        nonlocal is_known
        code = codes.NOT_CALLED if is_known else call()
        if code in (codes.OK, codes.NOT_CALLED):
            code = output.add(result, at, box.value) or code
            is_known = box.value <= _CELSIUS
        return code

    return read


def fans(target: Target, field: str) -> Reader:
    """Create a reader of the speed of the fastest fan."""
    code, count = target.nvml.number("nvmlDeviceGetNumFans", target.handle)
    codes.check(code)
    box = ctypes.c_uint()
    calls = [
        target.bind("nvmlDeviceGetFanSpeed_v2", ctypes.c_uint(fan), ctypes.byref(box))
        for fan in range(count if code == codes.OK else 0)
    ]
    output = target.output(field, _FAN)

    def read(result: GpuReadings, at: Instant) -> int:
        fastest, missing, failed = -1, codes.OK if calls else codes.NOT_SUPPORTED, codes.OK
        for call in calls:
            code = call()
            if code in codes.NO_READING:
                missing = code
            elif code:
                failed = code
            elif box.value <= _FAN:
                fastest = max(fastest, box.value)
            elif box.value != NONE32:
                failed = codes.OUT_OF_RANGE
        if fastest < 0:
            return failed or missing
        output.add(result, at, fastest)
        return failed

    return read


def licence(target: Target, field: str) -> Reader:
    """Create a reader of the vGPU licence: 1 if active, also 0 if the GPU needs none."""
    box = library.Licence()
    call = target.bind("nvmlDeviceGetGridLicensableFeatures_v4", ctypes.byref(box))
    output = target.output(field, 1)

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
        if code == codes.OK:
            features = box.gridLicensableFeatures[: box.licensableFeaturesCount]
            held = box.isGridLicenseSupported and any(f.featureState for f in features)
            output.add(result, at, 1 if held else 0)
        return code

    return read
