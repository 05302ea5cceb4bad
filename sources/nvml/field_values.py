"""Field values: many readings with one call, each with its own return code."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.model import Instant, Reading
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library
from sources.nvml.readers import NONE32, NONE64, GpuReadings, Reader

OnValue: TypeAlias = Callable[[GpuReadings, Instant, int | float], int]
"""Converts a value to readings; returns NVML's code, or `OUT_OF_RANGE`."""

ALL_LINKS: Final = 0xFFFF_FFFF
"""The scope that means all NVLinks together."""


@dataclass(frozen=True, slots=True)
class FieldValueRequest:
    """A field value to read.

    Attributes:
        number: NVML's id of the field.
        on_value: converts the value to readings.
        scope: the link, for a field with one value per link.
        fallback: reads the same field in another way if the device does not support this one.
    """

    number: int
    on_value: OnValue
    scope: int = 0
    fallback: Reader | None = None


@dataclass(frozen=True, slots=True)
class FieldValueSpec:
    """A field that is read as one field value.

    Attributes:
        number: NVML's id.
        max_value: the largest possible value, in NVML's unit.
        divisor: divides NVML's value to convert it to the field's unit.
    """

    number: int
    max_value: int
    divisor: int = 1


_MILLIWATTS: Final = 100_000_000
_COUNT: Final = 1 << 62

# The limits are far above the values of any GPU.
FAST: Final[dict[str, FieldValueSpec]] = {
    "memory_temperature_celsius": FieldValueSpec(82, 200),
    "power_instant_watts": FieldValueSpec(186, _MILLIWATTS, 1000),
}
SLOW: Final[dict[str, FieldValueSpec]] = {
    "power_limit_min_watts": FieldValueSpec(187, _MILLIWATTS, 1000),
    "power_limit_max_watts": FieldValueSpec(188, _MILLIWATTS, 1000),
    "power_limit_default_watts": FieldValueSpec(189, _MILLIWATTS, 1000),
    "power_limit_watts": FieldValueSpec(192, _MILLIWATTS, 1000),
    "retired_pages_single_bit": FieldValueSpec(29, 1 << 20),
    "retired_pages_double_bit": FieldValueSpec(30, 1 << 20),
    "retired_pages_pending": FieldValueSpec(31, 1),
    "violation_power_nanoseconds": FieldValueSpec(74, _COUNT),
    "violation_thermal_nanoseconds": FieldValueSpec(75, _COUNT),
    "violation_sync_boost_nanoseconds": FieldValueSpec(76, _COUNT),
    "violation_board_limit_nanoseconds": FieldValueSpec(77, _COUNT),
    "violation_low_utilization_nanoseconds": FieldValueSpec(78, _COUNT),
    "violation_reliability_nanoseconds": FieldValueSpec(79, _COUNT),
    # The driver numbers the actions from 0 and adds new ones at the end.
    "recovery_action": FieldValueSpec(230, 255),
}


def number(spec: FieldValueSpec, target: tuple[str, str, int]) -> OnValue:
    """Return a function that converts the value to one reading.

    Args:
        spec: the field value.
        target: uuid, name of the field, and how long its readings are valid.
    """
    uuid, field, valid_ns = target
    max_value, divisor = spec.max_value, spec.divisor

    def on_value(result: GpuReadings, at: Instant, value: int | float) -> int:
        if 0 <= value <= max_value:
            if divisor != 1:
                value /= divisor
            result.append(Reading(uuid, field, (), value, None, at, valid_ns))
        elif value not in (NONE32, NONE64):
            return codes.OUT_OF_RANGE
        return codes.OK

    return on_value


def batch(nvml: Library, handle: Handle, items: Sequence[FieldValueRequest]) -> Reader | None:
    """Create a reader of several field values; a failure of one does not affect the others."""
    if not items:
        return None
    values = library.field_values(*((item.number, item.scope) for item in items))
    call = nvml.bind("nvmlDeviceGetFieldValues", handle, ctypes.c_int(len(items)), values)
    if call is None:
        return None
    bound = call
    parts = list(zip(values, items, strict=True))

    def read(result: GpuReadings, at: Instant) -> int:
        code = bound()
        if code:
            return code
        has_some = False
        for value, item in parts:
            code = int(value.nvmlReturn)
            if code == codes.OK:
                found = library.field_number(value)
                if found is not None:
                    code = item.on_value(result, at, found)
            elif code in codes.UNSUPPORTED and item.fallback is not None:
                code = item.fallback(result, at)
            if code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            has_some |= code not in codes.UNSUPPORTED
            if code not in codes.NO_READING and code != codes.OK:
                result.errors.append(code)
        return codes.OK if has_some else codes.NOT_SUPPORTED

    return read
