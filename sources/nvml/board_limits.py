"""What a board is allowed and how it stands: power limit, temperature limits, fans, licence."""

import ctypes
from typing import Final

from pipeline.model import Instant, Reading
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.readers import NONE32, GpuReadings, Reader, number

THRESHOLDS: Final = {"temperature_shutdown_celsius": 0, "temperature_slowdown_celsius": 1}
"""By NVML's number of the threshold."""

_MILLIWATTS: Final = 100_000_000
_CELSIUS: Final = 250
_FAN: Final = 250  # a fan may be driven beyond its rating


def threshold(
    nvml: Library, handle: Handle, which: int, target: tuple[str, str, int]
) -> Reader | None:
    """Read a temperature limit, once: it costs up to two milliseconds and never changes."""
    box = ctypes.c_uint()
    call = nvml.bind(
        "nvmlDeviceGetTemperatureThreshold", handle, ctypes.c_int(which), ctypes.byref(box)
    )
    if call is None:
        return None
    keep = call
    uuid, field, good = target
    known: int | None = None

    def read(sheet: GpuReadings, at: Instant) -> int:
        nonlocal known
        code = codes.UNASKED
        if known is None:
            code = keep()
            if code or box.value == NONE32:
                return code
            if box.value > _CELSIUS:
                return codes.OUT_OF_RANGE
            known = box.value
        sheet.append(Reading(uuid, field, (), known, None, at, good))
        return code

    return read


def limit_before(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Read the power limit that was set, as drivers tell it that lack the field value."""
    box = ctypes.c_uint()
    call = nvml.bind("nvmlDeviceGetPowerManagementLimit", handle, ctypes.byref(box))
    if call is None:
        return None
    return number(call, box, target, most=_MILLIWATTS, unknown=NONE32, divisor=1000)


def fans(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Read the speed of the fastest fan; a board without fans has none."""
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
    uuid, field, good = target

    def read(sheet: GpuReadings, at: Instant) -> int:
        fastest, lacking, failed = -1, codes.OK, codes.OK
        for call in bound:
            code = call()
            if code in codes.NO_READING:
                lacking = code
            elif code:
                failed = code
            elif box.value <= _FAN:
                fastest = max(fastest, box.value)
            elif box.value != NONE32:
                failed = codes.OUT_OF_RANGE
        if fastest >= 0:
            sheet.append(Reading(uuid, field, (), fastest, None, at, good))
        return failed or (lacking if fastest < 0 else codes.OK)

    return read


def licence(nvml: Library, handle: Handle, target: tuple[str, str, int]) -> Reader | None:
    """Read whether a vGPU licence is in force; 0 too on a card that needs none."""
    box = library.licence_box()
    call = nvml.bind("nvmlDeviceGetGridLicensableFeatures_v4", handle, ctypes.byref(box))
    if call is None:
        return None
    keep = call
    uuid, field, good = target

    def read(sheet: GpuReadings, at: Instant) -> int:
        code = keep()
        if code == 0:
            features = box.gridLicensableFeatures[: box.licensableFeaturesCount]
            held = box.isGridLicenseSupported and any(f.featureState for f in features)
            sheet.append(Reading(uuid, field, (), 1 if held else 0, None, at, good))
        return code

    return read
