"""Field values: many readings with one call, each with its own return code."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.model import Instant
from sources.nvml import codes, library
from sources.nvml.targets import COUNT, MILLIWATTS, GpuReadings, Reader, Target

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


# The limits are far above the values of any GPU.
FAST: Final[dict[str, FieldValueSpec]] = {
    "memory_temperature_celsius": FieldValueSpec(82, 200),
    "power_instant_watts": FieldValueSpec(186, MILLIWATTS, 1000),
}
SLOW: Final[dict[str, FieldValueSpec]] = {
    "power_limit_min_watts": FieldValueSpec(187, MILLIWATTS, 1000),
    "power_limit_max_watts": FieldValueSpec(188, MILLIWATTS, 1000),
    "power_limit_default_watts": FieldValueSpec(189, MILLIWATTS, 1000),
    "power_limit_watts": FieldValueSpec(192, MILLIWATTS, 1000),
    "retired_pages_single_bit": FieldValueSpec(29, 1 << 20),
    "retired_pages_double_bit": FieldValueSpec(30, 1 << 20),
    "retired_pages_pending": FieldValueSpec(31, 1),
    "violation_power_nanoseconds": FieldValueSpec(74, COUNT),
    "violation_thermal_nanoseconds": FieldValueSpec(75, COUNT),
    "violation_sync_boost_nanoseconds": FieldValueSpec(76, COUNT),
    "violation_board_limit_nanoseconds": FieldValueSpec(77, COUNT),
    "violation_low_utilization_nanoseconds": FieldValueSpec(78, COUNT),
    "violation_reliability_nanoseconds": FieldValueSpec(79, COUNT),
    # The driver numbers the actions from 0 and adds new ones at the end.
    "recovery_action": FieldValueSpec(230, 255),
}


def batch(target: Target, items: Sequence[FieldValueRequest]) -> Reader:
    """Create a reader of several field values; a failure of one does not affect the others."""
    values = library.field_values(*((item.number, item.scope) for item in items))
    call = target.bind("nvmlDeviceGetFieldValues", ctypes.c_int(len(items)), values)
    parts = list(zip(values, items, strict=True))

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
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
