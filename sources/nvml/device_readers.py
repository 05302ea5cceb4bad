"""Readers of what a GPU is and how it is configured, and of the fields of the group `details`."""

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pipeline.fields import CATALOGUE
from pipeline.model import Instant, Reading
from sources.nvml import codes, library
from sources.nvml.composite_readers import ALL_LINKS, FieldValueRequest
from sources.nvml.nvlink import REGISTERED
from sources.nvml.reader_parts import (
    COUNT,
    NONE32,
    NONE64,
    FieldOutput,
    GpuReadings,
    Reader,
    ReadTarget,
    combined,
    reader,
)

_CORRUPTED_INFOROM: Final = 14
_UNKNOWN_PLACE: Final = 0xFF

_OF_ALL_LINKS: Final = frozenset({*range(161, 164), *range(201, 223), *range(235, 251)})
"""Field values of NVLinks whose scope is a link or all links."""

_FIELD_VALUE: Final = re.compile(r"nvmlDeviceGetFieldValues\((\d+)\)")

_LIMITS: Final = {"bool": 1, "percent": 100, "watts": 100_000}
"""The largest possible values by unit, in the unit of NVML, which is also the field's."""

VALUES: Final[Mapping[str, tuple[int, int]]] = {
    field.name: (int(found[1]), _LIMITS.get(field.unit, COUNT))
    for field in CATALOGUE
    if field.group == "details"
    and not field.name.endswith("_bandwidth_bytes_per_second")
    and (found := _FIELD_VALUE.fullmatch(field.call))
}
"""NVML's id and the largest possible value, by field that is one field value."""

_ERROR_RATIOS: Final = frozenset(
    field.name for field in CATALOGUE if field.unit == "ratio" and field.name in VALUES
)

_PLACES: Final = {
    "platform_chassis_slot_number": ("slotNumber", _UNKNOWN_PLACE - 1),
    "platform_tray_index": ("trayIndex", _UNKNOWN_PLACE - 1),
    "platform_host_id": ("hostId", _UNKNOWN_PLACE),
    "platform_peer_type": ("peerType", _UNKNOWN_PLACE),
    "platform_module_id": ("moduleId", _UNKNOWN_PLACE),
}
_PCI_IDS: Final = {
    "pci_combined_id": ("pciDeviceId", NONE32 - 1),
    "pci_subsystem_id": ("pciSubSystemId", NONE32 - 1),
}
_BANKS: Final = {
    f"banks_remap_{name}": (name, NONE32 - 1) for name in ("max", "high", "partial", "low", "none")
}
_BAR1: Final = {
    f"bar1_{name.lower()}_bytes": (f"bar1{name}", COUNT) for name in ("Total", "Used", "Free")
}
_MARGIN: Final = "temperature_margin_celsius"
_SRAM: Final = {"sram_errors_exceeded": ("bThresholdExceeded", 1)}

FABRIC: Final = (
    "fabric_manager_status",
    "fabric_clique_id",
    "fabric_health_mask",
    "fabric_health_summary",
)

# nvmlComputeMode_t: DCGM has not had the mode 1, one thread, since NVML lacks it.
_COMPUTE_MODES: Final = {0: 0, 2: 1, 3: 2}
_FAILED: Final = REGISTERED + 1


def read_once(read: Reader) -> Reader:
    """Return a reader of constants: it calls `read` until there are readings, then repeats them."""
    known: list[Reading] = []

    def repeat(result: GpuReadings, at: Instant) -> int:
        if known:
            result.extend(reading._replace(at=at) for reading in known)
            return codes.NOT_CALLED
        before = len(result)
        code = read(result, at)
        known.extend(result[before:])
        return code

    return repeat


def field_values(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of the field values of the group `details`."""
    for field, (number, max_value) in VALUES.items():
        if target.wants(field):
            output = target.output(field, max_value)
            take = partial(_add_ratio, output) if field in _ERROR_RATIOS else output.add
            yield FieldValueRequest(number, take, ALL_LINKS if number in _OF_ALL_LINKS else 0)


def _add_ratio(output: FieldOutput, result: GpuReadings, at: Instant, value: int | float) -> int:
    """Append an error rate: bits 8 to 11 are its mantissa, the lower ones its negative exponent."""
    mantissa, exponent = int(value) >> 8 & 0xF, int(value) & 0xFF
    return output.add(result, at, mantissa * 10.0**-exponent)


def structs(target: ReadTarget) -> Iterator[Reader]:
    """Yield the readers of the slow tier that read a struct."""
    for call, make, members, is_constant in (
        ("nvmlDeviceGetPciInfo_v3", library.PciInfo, _PCI_IDS, True),
        ("nvmlDeviceGetRowRemapperHistogram", library.RowRemapperHistogram, _BANKS, False),
        ("nvmlDeviceGetSramEccErrorStatus", library.SramErrorStatus, _SRAM, False),
    ):
        if target.wants(*members):
            read = _struct(target, call, make, members)
            yield read_once(read) if is_constant else read
    if target.wants(*_PLACES):
        yield read_once(_platform(target))
    if target.wants(_MARGIN):
        yield _margin(target)
    if target.wants(*FABRIC):
        yield _fabric(target)


def bar1(target: ReadTarget) -> Iterator[Reader]:
    """Yield the reader of the address space that maps device memory, if it is requested."""
    if target.wants(*_BAR1):
        yield _struct(target, "nvmlDeviceGetBAR1MemoryInfo", library.Bar1Memory, _BAR1)


def _struct(
    target: ReadTarget, call: str, make: Callable[[], Any], members: Mapping[str, tuple[str, int]]
) -> Reader:
    box = make()
    parts = []
    for field, (member, max_value) in members.items():
        if target.wants(field):
            output = target.output(field, max_value)
            # All bits of a number are 1 if it is unknown.
            unknown = (max_value + 1, NONE32, NONE64)
            parts.append((box, member, replace(output, unknown=unknown)))
    return reader(target.bind(call, ctypes.byref(box)), *parts)


def _platform(target: ReadTarget) -> Reader:
    """Create a reader of the GPU's place in its platform.

    Without a serial number of the chassis, as in virtual machines, the driver knows only the
    module: its other numbers are then 0 or 1, and nvidia-smi shows none.
    """
    box = library.PlatformInfo()
    call = target.bind("nvmlDeviceGetPlatformInfo", ctypes.byref(box))
    outputs = [
        (member, target.output(field, max_value))
        for field, (member, max_value) in _PLACES.items()
        if target.wants(field)
    ]

    def read(result: GpuReadings, at: Instant) -> int:
        if code := call():
            return code
        is_placed = any(box.chassisSerialNumber)
        return combined(
            result,
            (
                output.add(result, at, getattr(box, member))
                for member, output in outputs
                if (is_placed or member == "moduleId") and getattr(box, member) != _UNKNOWN_PLACE
            ),
        )

    return read


def _margin(target: ReadTarget) -> Reader:
    box = library.MarginTemperature()
    call = target.bind("nvmlDeviceGetMarginTemperature", ctypes.byref(box))
    valid_ns = target.output(_MARGIN, 0).valid_ns

    def read(result: GpuReadings, at: Instant) -> int:
        code, value = call(), box.marginTemperature
        if code:
            return code
        if not -200 <= value <= 200:
            return codes.OUT_OF_RANGE
        result.append(Reading(target.uuid, _MARGIN, (), value, None, at, valid_ns))
        return code

    return read


def _fabric(target: ReadTarget) -> Reader:
    name = "nvmlDeviceGetGpuFabricInfoV"
    for make in library.FABRIC_INFO:
        box = make()
        call = target.bind(name, ctypes.byref(box))
        if call() != codes.ARGUMENT_VERSION_MISMATCH:
            break
    outputs = {field: target.output(field, NONE32 - 1) for field in FABRIC if target.wants(field)}

    def values() -> Iterator[tuple[str, int]]:
        # The state has one byte in NVML's header, four in pynvml.
        state = box.state & 0xFF
        is_registered = state == REGISTERED and box.status == codes.OK
        yield "fabric_manager_status", _FAILED if state == REGISTERED and box.status else state
        if is_registered:
            yield "fabric_clique_id", box.cliqueId
        yield "fabric_health_mask", box.healthMask
        if hasattr(box, "healthSummary"):
            yield "fabric_health_summary", box.healthSummary

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
        if code == codes.OK:
            for field, value in values():
                if field in outputs:
                    outputs[field].add(result, at, value)
        return code

    return read


def compute_capability(target: ReadTarget, field: str) -> Reader:
    """Create a reader of the compute capability of CUDA, as DCGM encodes it."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    boxes = ctypes.byref(major), ctypes.byref(minor)
    call = target.bind("nvmlDeviceGetCudaComputeCapability", *boxes)
    output = target.output(field, NONE32 - 1)
    return read_once(_converted(call, output, lambda _: major.value << 16 | minor.value))


def compute_mode(target: ReadTarget, field: str) -> Reader:
    """Create a reader of the compute mode, in DCGM's numbers."""
    box = ctypes.c_uint()
    call = target.bind("nvmlDeviceGetComputeMode", ctypes.byref(box))
    unknown = NONE32
    output = target.output(field, 2)
    return _converted(call, output, lambda _: _COMPUTE_MODES.get(box.value, unknown))


def mig_mode(target: ReadTarget, field: str) -> Reader:
    """Create a reader of the MIG mode; it is off on a GPU that lacks it."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    call = target.bind("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending))

    def value(code: int) -> int:
        return 0 if code == codes.NOT_SUPPORTED else current.value

    return _converted(call, target.output(field, 1), value, {codes.NOT_SUPPORTED})


def gpm_support(target: ReadTarget, field: str) -> Reader:
    """Create a reader that shows whether the GPU supports GPM."""
    support = [False]

    def call() -> int:
        code, support[0] = target.nvml.supports_gpm(target.handle)
        return code

    return read_once(_converted(call, target.output(field, 1), lambda _: support[0]))


def inforom_valid(target: ReadTarget, field: str) -> Reader:
    """Create a reader that shows whether the checksums of the inforom are right."""
    call = target.bind("nvmlDeviceValidateInforom")
    valid = _converted(
        call, target.output(field, 1), lambda code: code == codes.OK, {_CORRUPTED_INFOROM}
    )
    return read_once(valid)


def _converted(
    call: Callable[[], int],
    output: FieldOutput,
    value: Callable[[int], int],
    answers: set[int] | frozenset[int] = frozenset(),
) -> Reader:
    """Create a reader of a number that `value` calculates from NVML's code and the call's boxes.

    Args:
        call: the bound call.
        output: converts the number.
        value: returns the number for a code.
        answers: codes besides `OK` for which there is a number.
    """

    def read(result: GpuReadings, at: Instant) -> int:
        code = call()
        if code != codes.OK and code not in answers:
            return code
        return output.add(result, at, int(value(code)))

    return read
