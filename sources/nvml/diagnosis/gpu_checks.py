"""Checks of each GPU with a few calls of NVML."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.component.findings import Finding
from sources.nvml import codes, library
from sources.nvml.checks import CHECKS
from sources.nvml.diagnosis.library_checks import Driver
from sources.nvml.library import Handle, Library

_COUNT: Final = ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
_PLACE: Final = "NVML"


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU and its response.

    Attributes:
        name: index, model and bus id, as far as they are known.
        code: the worst code of its calls.
        handle: None if it cannot be fetched.
    """

    name: str
    code: int
    handle: Handle | None


@dataclass(frozen=True, slots=True)
class Profiling:
    """The requested fields that need GPM.

    Attributes:
        shown: names of the fields.
        chosen: how many of them the configuration requests; the others are defaults.
        elsewhere: whether another source provides them too.
    """

    shown: Sequence[str]
    chosen: int
    elsewhere: bool


def check_gpus(driver: Driver, profiling: Profiling) -> list[Finding]:
    """Check `nvml.gpus`, `nvml.mig` and `nvml.profiling`, or `nvml.access` if all calls fail.

    Args:
        driver: what files show about the driver.
        profiling: the requested fields that need GPM.
    """
    nvml = Library()
    nvml.open()
    try:
        code, count = nvml.number(_COUNT)
        gpus = [_gpu(nvml, index) for index in range(count)] if code == codes.OK else []
        answered = [gpu.code for gpu in gpus] or [code]
        if all(each == codes.UNKNOWN for each in answered):
            observed = f"every call returned {codes.name(codes.UNKNOWN)} ({codes.UNKNOWN})"
            return [CHECKS["nvml.access"].failure(_PLACE, observed, codes.RELOADED)]
        working = [gpu for gpu in gpus if gpu.handle is not None and gpu.code == codes.OK]
        return [
            *_gpus(gpus, code, driver),
            _mig(nvml, working),
            _profiling(nvml, working, profiling),
        ]
    finally:
        nvml.close()


def _gpu(nvml: Library, index: int) -> _Gpu:
    name = f"GPU {index}"
    code, handle = nvml.handle_at(index)
    if code:
        return _Gpu(name, code, None)
    queries = (nvml.text("nvmlDeviceGetName", handle), nvml.pci_bus_id(handle))
    parts = [text for answer, text in queries if answer == codes.OK and text]
    uuid = nvml.text("nvmlDeviceGetUUID", handle)
    # A GPU may not support each of these; a lost GPU fails all of them.
    power = nvml.number("nvmlDeviceGetPowerUsage", handle)
    asked = [answer for answer, _ in (*queries, uuid, power)]
    faults = [answer for answer in asked if answer not in codes.ALIVE | codes.UNSUPPORTED]
    lost = [answer for answer in faults if answer in codes.LOST]
    return _Gpu(" ".join([name, *parts]), (lost or faults or [codes.OK])[0], handle)


def _gpus(gpus: Sequence[_Gpu], code: int, driver: Driver) -> Iterable[Finding]:
    check = CHECKS["nvml.gpus"]
    if code or not gpus:
        queries = f"returned {codes.name(code)} ({code})" if code else "shows no GPU"
        fix = "set NVIDIA_VISIBLE_DEVICES=all; see the kernel log (dmesg) for NVRM messages"
        return [check.failure(_PLACE, queries, fix)]
    found = [
        check.failure(
            gpu.name,
            f"returned {codes.name(gpu.code)} ({gpu.code})",
            _fix_for(gpu.code),
        )
        for gpu in gpus
        if gpu.code
    ]
    if len(gpus) < len(driver.gpus):
        observed = f"shows {len(gpus)} of the {len(driver.gpus)} GPUs that the driver has"
        fix = (
            "set NVIDIA_VISIBLE_DEVICES=all; if it is set, a GPU has fallen off the bus: see the "
            "kernel log (dmesg), and reset the GPU or reboot"
        )
        found.append(check.failure(_PLACE, observed, fix))
    return found or [check.ok(_PLACE, f"{len(gpus)} GPUs respond")]


def _fix_for(code: int) -> str:
    """Return the fix for a code. Only the fix for a lost GPU ends its workloads."""
    if code in codes.LOST:
        return (
            "see the kernel log (dmesg) for its XID errors, drain the node, then reset the GPU "
            "(nvidia-smi --gpu-reset) or reboot; replace a GPU that is lost again"
        )
    if code == codes.NO_PERMISSION:
        return (
            "make the container runtime pass this GPU to the container (runtimeClassName: nvidia, "
            "NVIDIA_VISIBLE_DEVICES=all), and check that its file in /dev can be opened"
        )
    if code == codes.INSUFFICIENT_POWER:
        return "check the power cables of the card and the power supply of the node"
    return "see the kernel log (dmesg) for NVRM messages and XID errors; nvidia-smi -q shows more"


def _mig(nvml: Library, gpus: Sequence[_Gpu]) -> Finding:
    check = CHECKS["nvml.mig"]
    pending, without_instances, unreadable, enabled = [], [], [], 0
    for gpu in gpus:
        current, wanted = ctypes.c_uint(), ctypes.c_uint()
        code = nvml.call(
            "nvmlDeviceGetMigMode", gpu.handle, ctypes.byref(current), ctypes.byref(wanted)
        )
        if code in codes.UNSUPPORTED:
            continue
        if code:
            unreadable.append(f"{gpu.name} returned {codes.name(code)} ({code})")
            continue
        enabled += current.value
        if current.value != wanted.value:
            pending.append(f"{gpu.name}: {_mode(current.value)}, {_mode(wanted.value)} is pending")
        elif current.value and not _instances(nvml, gpu.handle):
            without_instances.append(gpu.name)
    if pending:
        fix = (
            "remove podgpu's nvml source from the configuration or stop podgpu, then drain the GPU "
            "and reset it (nvidia-smi --gpu-reset -i N); or reboot"
        )
        return check.warning("MIG mode", "; ".join(pending), fix)
    if without_instances:
        fix = (
            "create instances (nvidia-smi mig -cgi); if there are instances, set "
            "NVIDIA_MIG_MONITOR_DEVICES=all and run podgpu privileged"
        )
        observed = f"on, but no instance is visible: {', '.join(without_instances)}"
        return check.warning("MIG instances", observed, fix)
    if unreadable:
        fix = "see the kernel log (dmesg) for NVRM messages; nvidia-smi -q -d MIG shows more"
        return check.warning("MIG mode", f"cannot read it: {'; '.join(unreadable)}", fix)
    return check.ok(
        "MIG mode", f"on for {enabled} GPUs, no change is pending" if enabled else "off"
    )


def _mode(value: int) -> str:
    return "on" if value else "off"


def _instances(nvml: Library, handle: Handle) -> int:
    code, most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    found = 0
    for index in range(most if code == codes.OK else 0):
        box = library.Device()
        code = nvml.call(
            "nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index), ctypes.byref(box)
        )
        found += code == codes.OK
    return found


def _profiling(nvml: Library, gpus: Sequence[_Gpu], wanted: Profiling) -> Finding:
    check, place = CHECKS["nvml.profiling"], "nvmlGpmQueryDeviceSupport"
    if not wanted.shown:
        return check.skip(place, "no profiling field is requested")
    if not gpus:
        return check.skip(place, "no GPU responds")
    lacking = [gpu.name for gpu in gpus if nvml.supports_gpm(gpu.handle) != (codes.OK, True)]
    if not lacking:
        return check.ok(place, f"all GPUs support the {len(wanted.shown)} requested fields")
    observed = f"not supported by the architecture of {', '.join(lacking)}"
    if wanted.elsewhere:
        return check.ok(place, f"{observed}; the source hostengine provides the fields")
    if not wanted.chosen:
        usual = f"{len(wanted.shown)} default fields are missing"
        return check.skip(place, f"{observed}; {usual}; a source of kind hostengine provides them")
    fix = (
        "add a source of kind hostengine, which reads the fields from DCGM, or remove the "
        "DCGM_FI_PROF rows from the counters file"
    )
    return check.warning(place, f"{observed}; {wanted.chosen} fields are requested", fix)
