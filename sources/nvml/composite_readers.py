"""Readers that combine several numbers or calls, or that read NVML's field values."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pipeline.model import Instant
from sources.nvml import codes, library
from sources.nvml.event_counts import REASONS
from sources.nvml.library import Handle, Library
from sources.nvml.reader_parts import (
    COUNT,
    MILLIWATTS,
    NONE32,
    NONE64,
    FieldOutput,
    GpuReadings,
    Reader,
    ReadTarget,
    combined,
    reader,
)

OnValue: TypeAlias = Callable[[GpuReadings, Instant, int | float], int]
"""Converts a value to readings; returns NVML's code, or `OUT_OF_RANGE`."""

ALL_LINKS: Final = 0xFFFF_FFFF
"""The scope that means all NVLinks together."""


@dataclass(frozen=True, slots=True)
class FieldValueRequest:
    """A field value to read.

    Attributes:
        number: NVML's id of the field value.
        on_value: converts the value to readings.
        scope: the number of an NVLink, or `ALL_LINKS`; 0 for a field value without links.
        fallback: reads the field in another way if the device does not support the field value.
    """

    number: int
    on_value: OnValue
    scope: int = 0
    fallback: Reader | None = None


@dataclass(frozen=True, slots=True)
class FieldValueSpec:
    """How to read one of podgpu's fields with `nvmlDeviceGetFieldValues`.

    Attributes:
        number: NVML's id of the field value.
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

UTILIZATION: Final = ("gpu_utilization_percent", "memory_copy_utilization_percent")
MEMORY_FIELDS: Final = {
    "total": "memory_total_bytes",
    "used": "memory_used_bytes",
    "free": "memory_free_bytes",
    "reserved": "memory_reserved_bytes",
}
MEMORY_RATIO: Final = "memory_used_ratio"
CLOCK_FIELDS: Final = (
    "clock_throttle_reasons",
    "clock_throttle_active",
    "clock_events_in_window",
    "clock_events",
)
ROW_LIMITS: Final = {
    "remapped_rows_correctable": 1 << 20,
    "remapped_rows_uncorrectable": 1 << 20,
    "row_remap_pending": 1,
    "row_remap_failed": 1,
}

_FAN: Final = 250  # percent; a fan may exceed its rated speed


def utilization(target: ReadTarget) -> Reader:
    """Create a reader of GPU and memory utilisation in percent."""
    box = library.Utilization()
    call = target.bind("nvmlDeviceGetUtilizationRates", ctypes.byref(box))
    parts = [
        (box, member, target.output(field, 100))
        for member, field in zip(("gpu", "memory"), UTILIZATION, strict=True)
        if target.wants(field)
    ]
    return reader(call, *parts)


def memory(target: ReadTarget) -> Reader:
    """Create a reader of device memory.

    If the driver lacks version 2 of the call, the reader uses version 1, without `reserved`.
    """
    unknown = {codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH, codes.NOT_SUPPORTED}
    box = library.memory_box(2)
    call = target.bind("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(box))
    if call() in unknown:
        box = library.memory_box(1)
        call = target.bind("nvmlDeviceGetMemoryInfo", ctypes.byref(box))
    parts = [
        (member, target.output(field, COUNT))
        for member, field in MEMORY_FIELDS.items()
        if target.wants(field) and hasattr(box, member)
    ]
    ratio = target.output(MEMORY_RATIO, 1) if target.wants(MEMORY_RATIO) else None

    def read(result: GpuReadings, at: Instant) -> int:
        code, total = call(), box.total
        # A GPU without its own memory, such as a GB10, reports zeros.
        if code or total in (0, NONE64):
            return code
        usable = total - getattr(box, "reserved", 0)
        if ratio is not None and 0 <= box.used <= usable > 0:
            ratio.add(result, at, box.used / usable)
        for member, output in parts:
            value = getattr(box, member)
            if total < value != NONE64:
                code = codes.OUT_OF_RANGE
            else:
                output.add(result, at, value)
        return code

    return read


def memory_total(nvml: Library, handle: Handle) -> int | None:
    """Return a GPU's memory in bytes; None if the driver reports no size, as for a GB10.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    box = library.memory_box(1)
    code = nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(box))
    codes.check(code)
    return int(box.total) if code == codes.OK and 0 < box.total < NONE64 else None


def throttling(target: ReadTarget) -> Reader:
    """Create a reader of the reasons for lower clocks: the mask, each reason, and the counts."""
    supported = ctypes.c_ulonglong()
    names = (
        "nvmlDeviceGetSupportedClocksEventReasons",
        "nvmlDeviceGetSupportedClocksThrottleReasons",
    )
    code = target.bind(names, ctypes.byref(supported))()
    codes.check(code)
    bits = [bit for bit in REASONS if code or bit & supported.value]
    events = target.wanted.clock_events
    masks, active, counted, started = CLOCK_FIELDS
    mask_output = target.output(masks, NONE64 - 1)
    reasons: list[tuple[int, FieldOutput]] = []
    if target.wants(active):
        reasons = [(bit, target.output(active, 1, 1, (("reason", REASONS[bit]),))) for bit in bits]
    counts: list[tuple[int, FieldOutput]] = []
    if target.wants(counted):
        counts = [(bit, target.output(counted, COUNT, 1, events.attrs[bit])) for bit in bits]
    totals: list[tuple[int, FieldOutput]] = []
    if target.wants(started):
        totals = [(bit, target.output(started, COUNT, 1, events.starts.attrs[bit])) for bit in bits]
    box = ctypes.c_ulonglong()
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    call = target.bind(names, ctypes.byref(box))
    with_mask = target.wants(masks)

    def read(result: GpuReadings, at: Instant) -> int:
        code, mask = call(), box.value
        if code or mask == NONE64:
            return code
        if with_mask:
            mask_output.add(result, at, mask)
        for bit, output in reasons:
            output.add(result, at, 1 if mask & bit else 0)
        if counts:
            found = events.add(target.uuid, mask, at)
            for bit, output in counts:
                output.add(result, at, found.get(bit, 0))
        if totals:
            since, starts = events.starts.add(target.uuid, mask, at)
            for bit, output in totals:
                output.add(result, at, starts[bit], since)
        return code

    return read


def remapped_rows(target: ReadTarget) -> Reader:
    """Create a reader of the remapped memory rows, and of pending and failed remappings."""
    boxes = [ctypes.c_uint() for _ in ROW_LIMITS]
    call = target.bind("nvmlDeviceGetRemappedRows", *map(ctypes.byref, boxes))
    parts = [
        (box, "value", target.output(field, limit))
        for box, (field, limit) in zip(boxes, ROW_LIMITS.items(), strict=True)
        if target.wants(field)
    ]
    return reader(call, *parts)


def fans(target: ReadTarget, field: str) -> Reader:
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


def licence(target: ReadTarget, field: str) -> Reader:
    """Create a reader of the vGPU licence: 1 if one is active, else 0 (also if none is needed)."""
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


class _FieldValueCall:
    """One call of `nvmlDeviceGetFieldValues`.

    The call may succeed and leave entries as they were: driver 580 does so with the ids 187 to 196
    and all from 251 on if there are some fifty others. Such an entry has no value: not 0, and not
    the one of the previous call.
    """

    def __init__(self, target: ReadTarget, items: Sequence[FieldValueRequest]) -> None:
        values = library.field_values(*((item.number, item.scope) for item in items))
        self._parts: list[tuple[library.Struct, FieldValueRequest]] = list(
            zip(values, items, strict=True)
        )
        self._call = target.bind("nvmlDeviceGetFieldValues", ctypes.c_int(len(items)), values)

    def __call__(self) -> int:
        for value, _ in self._parts:
            value.nvmlReturn = library.UNANSWERED
        return self._call()

    def answered(self) -> list[tuple[library.Struct, FieldValueRequest]]:
        return [part for part in self._parts if part[0].nvmlReturn != library.UNANSWERED]

    def unanswered(self) -> list[FieldValueRequest]:
        return [item for value, item in self._parts if value.nvmlReturn == library.UNANSWERED]


def batch(target: ReadTarget, items: Sequence[FieldValueRequest]) -> Reader:
    """Create a reader of several field values; a failure of one does not affect the others.

    Entries that the driver leaves out are requested again by themselves, then and in later rounds.
    """
    calls = [_FieldValueCall(target, items)]

    def each(result: GpuReadings, at: Instant) -> Iterator[int]:
        pending = list(calls)
        first = pending[0]
        while pending:
            made = pending.pop(0)
            if made is not first and (code := made()):
                yield code
                continue
            answered, left = made.answered(), made.unanswered()
            for value, item in answered:
                code = int(value.nvmlReturn)
                if code in codes.UNSUPPORTED and item.fallback is not None:
                    code = item.fallback(result, at)
                elif code == codes.OK and (number := library.field_number(value)) is not None:
                    code = item.on_value(result, at, number)
                yield code
            if len(left) == 1 and not answered:
                yield codes.NOT_SUPPORTED
            elif left:
                groups = [left] if answered else [[item] for item in left]
                smaller = [_FieldValueCall(target, group) for group in groups]
                pending[:0] = smaller
                kept = [_FieldValueCall(target, [item for _, item in answered])] if answered else []
                place = calls.index(made)
                calls[place : place + 1] = [*kept, *smaller]

    return lambda result, at: calls[0]() or combined(result, each(result, at))
