"""Readers: functions that call NVML for a device and convert the value to readings.

A reader is created once per device and called each round; it appends readings to a result and
returns NVML's code. A value that means "not available" appends nothing and is no error; an
impossible value appends nothing and returns `OUT_OF_RANGE`.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from pipeline.model import Attrs, Instant, ProcessList, Reading
from sources.nvml import codes, library
from sources.nvml.library import Call, Handle, Library


class GpuReadings(list[Reading]):
    """The results of one visit to a GPU and its MIG instances.

    Attributes:
        uuid: of the physical GPU.
        processes: as `SamplesTaken.processes`.
        errors: NVML's codes of the readings that failed.
        up: whether the GPU responded.
        at: when the visit took place.
    """

    __slots__ = ("at", "errors", "processes", "up", "uuid")

    def __init__(self, uuid: str, at: Instant) -> None:
        super().__init__()
        self.uuid = uuid
        self.at = at
        self.processes: list[ProcessList] = []
        self.errors: list[int] = []
        self.up = True


Reader: TypeAlias = Callable[[GpuReadings, Instant], int]

NONE32: Final = 0xFFFF_FFFF
NONE64: Final = 0xFFFF_FFFF_FFFF_FFFF


def number(
    call: Call,
    box: ctypes.c_uint | ctypes.c_ulonglong,
    target: tuple[str, str, int],
    *,
    max_value: int,
    unknown: int,
    divisor: int = 1,
) -> Reader:
    """Create a reader of one number.

    Args:
        call: the bound call; writes the number into `box`.
        box: gets the number.
        target: uuid, name of the field, and how long its readings are valid, in nanoseconds.
        max_value: the largest possible value.
        unknown: the value that means "not available".
        divisor: divides the number to convert it to the field's unit.
    """
    uuid, field, valid_ns = target

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
        if code == 0:
            value: int | float = box.value
            if value <= max_value:
                if divisor != 1:
                    value /= divisor
                result.append(Reading(uuid, field, (), value, None, at, valid_ns))
            elif value != unknown:
                return codes.OUT_OF_RANGE
        return code

    return read


def utilization(
    nvml: Library, handle: Handle, uuid: str, valid_ns: int, fields: Sequence[str | None]
) -> Reader | None:
    """Create a reader of GPU and memory utilisation in percent; None skips one of the fields."""
    box = library.utilization_box()
    call = nvml.bind("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(box))
    gpu, memory = fields
    if call is None:
        return None
    bound = call  # not None, also for the type checker within the closure

    def read(result: GpuReadings, at: Instant) -> int:
        code = bound()
        if code == 0:
            for field, value in ((gpu, box.gpu), (memory, box.memory)):
                if field is None or value == NONE32:
                    continue
                if value > 100:
                    code = codes.OUT_OF_RANGE
                else:
                    result.append(Reading(uuid, field, (), value, None, at, valid_ns))
        return code

    return read


MEMORY_FIELDS: Final = {
    "total": "memory_total_bytes",
    "used": "memory_used_bytes",
    "free": "memory_free_bytes",
    "reserved": "memory_reserved_bytes",
}


def memory(
    nvml: Library, handle: Handle, uuid: str, valid_ns: int, wanted: frozenset[str]
) -> Reader | None:
    """Create a reader of device memory; uses version 1, without `reserved`, if 2 is missing."""

    def of_version(version: int) -> Reader | None:
        box = library.memory_box(version)
        name = "nvmlDeviceGetMemoryInfo" if version == 1 else "nvmlDeviceGetMemoryInfo_v2"
        call = nvml.bind(name, handle, ctypes.byref(box))
        members = [
            (member, field)
            for member, field in MEMORY_FIELDS.items()
            if field in wanted and (version == 2 or member != "reserved")
        ]
        if call is None:
            return None
        bound = call

        def read(result: GpuReadings, at: Instant) -> int:
            code = bound()
            if code == 0:
                total = box.total
                if total in (0, NONE64):
                    # A GPU without its own memory, such as a GB10, reports zeros.
                    return 0
                for member, field in members:
                    value = getattr(box, member)
                    if value <= total:
                        result.append(Reading(uuid, field, (), value, None, at, valid_ns))
                    elif value != NONE64:
                        code = codes.OUT_OF_RANGE
            return code

        return read

    version2, version1 = of_version(2), of_version(1)
    if version2 is None or version1 is None:
        return version2 or version1
    return _with_fallback(version2, version1)


def memory_total(nvml: Library, handle: Handle) -> int | None:
    """Return a GPU's total memory in bytes; None if the driver doesn't report it.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    box = library.memory_box(1)
    code = nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(box))
    codes.check(code)
    return int(box.total) if code == codes.OK and 0 < box.total < NONE64 else None


def _with_fallback(new: Reader, old: Reader) -> Reader:
    """Create a reader that uses `old` once the driver reports that it does not know `new`."""
    unknown = {codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH, codes.NOT_SUPPORTED}
    current = new

    def read(result: GpuReadings, at: Instant) -> int:
        nonlocal current
        code = current(result, at)
        if code in unknown and current is new:
            fallback_code = old(result, at)
            if fallback_code == 0:
                current = old
            return fallback_code
        return code

    return read


REASONS: Final[Mapping[int, str]] = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


CLOCK_FIELDS: Final = (
    "clock_throttle_reasons",
    "clock_throttle_active",
    "clock_events_in_window",
)


class ClockEventCounter(Protocol):
    """Counts the samples in which each reason was active."""

    @property
    def attrs(self) -> Mapping[int, Attrs]:
        """The attributes of the counts, by bit."""

    def add(self, uuid: str, mask: int, at: Instant) -> Mapping[int, int]:
        """Count a sample of a GPU; return the counts by bit."""


def throttling(
    nvml: Library,
    handle: Handle,
    uuid: str,
    valid_ns: int,
    wanted: frozenset[str],
    *,
    event_counter: ClockEventCounter | None = None,
) -> Reader | None:
    """Create a reader of the reasons for lower clocks: the mask, and each supported reason."""
    supported = ctypes.c_ulonglong()
    code = nvml.call(
        (
            "nvmlDeviceGetSupportedClocksEventReasons",
            "nvmlDeviceGetSupportedClocksThrottleReasons",
        ),
        handle,
        ctypes.byref(supported),
    )
    codes.check(code)
    readable = supported.value if code == 0 else NONE64
    reasons: list[tuple[int, Attrs]] = [
        (bit, (("reason", reason),)) for bit, reason in REASONS.items() if bit & readable
    ]
    counts = event_counter if "clock_events_in_window" in wanted else None
    counted = [(bit, counts.attrs[bit]) for bit, _ in reasons] if counts is not None else []
    if "clock_throttle_active" not in wanted:
        reasons = []
    with_mask = "clock_throttle_reasons" in wanted
    box = ctypes.c_ulonglong()
    call = nvml.bind(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        handle,
        ctypes.byref(box),
    )
    if call is None:
        return None
    bound = call

    def read(result: GpuReadings, at: Instant) -> int:
        code = bound()
        if code == 0:
            mask = box.value
            if mask == NONE64:
                return 0
            if with_mask:
                result.append(Reading(uuid, "clock_throttle_reasons", (), mask, None, at, valid_ns))
            for bit, attrs in reasons:
                value = 1 if mask & bit else 0
                result.append(
                    Reading(uuid, "clock_throttle_active", attrs, value, None, at, valid_ns)
                )
            if counts is not None:
                found = counts.add(uuid, mask, at)
                for bit, attrs in counted:
                    value = found.get(bit, 0)
                    result.append(Reading(uuid, CLOCK_FIELDS[2], attrs, value, None, at, valid_ns))
        return code

    return read


ROW_FIELDS: Final = (
    "remapped_rows_correctable",
    "remapped_rows_uncorrectable",
    "row_remap_pending",
    "row_remap_failed",
)


def remapped_rows(
    nvml: Library, handle: Handle, uuid: str, valid_ns: int, wanted: frozenset[str]
) -> Reader | None:
    """Create a reader of the remapped memory rows, and of pending and failed remappings."""
    boxes = [ctypes.c_uint() for _ in ROW_FIELDS]
    call = nvml.bind("nvmlDeviceGetRemappedRows", handle, *map(ctypes.byref, boxes))
    if call is None:
        return None
    bound = call
    limits = (1 << 20, 1 << 20, 1, 1)
    parts = [
        (field, box, limit)
        for field, box, limit in zip(ROW_FIELDS, boxes, limits, strict=True)
        if field in wanted
    ]

    def read(result: GpuReadings, at: Instant) -> int:
        code = bound()
        if code == 0:
            for field, box, limit in parts:
                value = box.value
                if value <= limit:
                    result.append(Reading(uuid, field, (), value, None, at, valid_ns))
                elif value != NONE32:
                    code = codes.OUT_OF_RANGE
        return code

    return read
