"""Limits and state of a board: power limit, temperature limits, fans, licence."""

import ctypes
from typing import Final

from pipeline.model import Instant, Reading
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.readers import NONE32, GpuReadings, Reader, number

THRESHOLDS: Final = {"temperature_shutdown_celsius": 0, "temperature_slowdown_celsius": 1}
"""NVML's number of each threshold."""

_MILLIWATTS: Final = 100_000_000
_CELSIUS: Final = 250
_FAN: Final = 250  # percent; a fan may exceed its rated speed


def threshold(
    nvml: Library, handle: Handle, which: int, target: tuple[str, str, int]
) -> Reader | None:
    """Create a reader of a temperature limit; calls once, since it takes 2 ms and is constant."""
    box = ctypes.c_uint()
    call = nvml.bind(
        "nvmlDeviceGetTemperatureThreshold", handle, ctypes.c_int(which), ctypes.byref(box)
    )
    if call is None:
        return None
    bound = call
    uuid, field, valid_ns = target
    cached: int | None = None

    def read(result: GpuReadings, at: Instant) -> int:
        nonlocal cached
        code = codes.NOT_CALLED
        if cached is None:
            code = bound()
            if code or box.value == NONE32:
                return code
            if box.value > _CELSIUS:
                return codes.OUT_OF_RANGE
            cached = box.value
        result.append(Reading(uuid, field, (), cached, None, at, valid_ns))
        return code

    return read


def power_limit_fallback(
    nvml: Library, handle: Handle, target: tuple[str, str, int]
) -> Reader | None:
    """Create a reader of the configured power limit, for drivers that lack its field value."""
    box = ctypes.c_uint()
    call = nvml.bind("nvmlDeviceGetPowerManagementLimit", handle, ctypes.byref(box))
    if call is None:
        return None
    return number(call, box, target, max_value=_MILLIWATTS, unknown=NONE32, divisor=1000)


def fans(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Create a reader of the speed of the fastest fan; None for a board without fans."""
    code, count = nvml.number("nvmlDeviceGetNumFans", handle)
    codes.check(code)
    box = ctypes.c_uint()
    calls = [
        nvml.bind("nvmlDeviceGetFanSpeed_v2", handle, ctypes.c_uint(fan), ctypes.byref(box))
        for fan in range(count if code == 0 else 0)
    ]
    bound = [call for call in calls if call is not None]
    if not bound:
        return None
    uuid, field, valid_ns = target

    def read(result: GpuReadings, at: Instant) -> int:
        fastest, missing, failed = -1, codes.OK, codes.OK
        for call in bound:
            code = call()
            if code in codes.NO_READING:
                missing = code
            elif code:
                failed = code
            elif box.value <= _FAN:
                fastest = max(fastest, box.value)
            elif box.value != NONE32:
                failed = codes.OUT_OF_RANGE
        if fastest >= 0:
            result.append(Reading(uuid, field, (), fastest, None, at, valid_ns))
        return failed or (missing if fastest < 0 else codes.OK)

    return read


def licence(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Create a reader of the vGPU licence: 1 if active, also 0 if the GPU needs none."""
    box = library.licence_box()
    call = nvml.bind("nvmlDeviceGetGridLicensableFeatures_v4", handle, ctypes.byref(box))
    if call is None:
        return None
    bound = call
    uuid, field, valid_ns = target

    def read(result: GpuReadings, at: Instant) -> int:
        code = bound()
        if code == 0:
            features = box.gridLicensableFeatures[: box.licensableFeaturesCount]
            held = box.isGridLicenseSupported and any(f.featureState for f in features)
            result.append(Reading(uuid, field, (), 1 if held else 0, None, at, valid_ns))
        return code

    return read
