"""Every GPU, asked the few things that tell whether it is well."""

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from sources.nvml import codes, library
from sources.nvml.diagnosis.driver_files import Driver
from sources.nvml.library import Handle, Library
from sources.nvml.open_errors import RELOADED

_COUNT: Final = ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
_PLACE: Final = "NVML"


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU and how it answered.

    Attributes:
        name: for people: index, model, bus id, as far as they are known.
        code: the worst that it answered.
        handle: None if it can't be had.
    """

    name: str
    code: int
    handle: Handle | None


@dataclass(frozen=True, slots=True)
class Profiling:
    """Fields that NVML's GPM has.

    Attributes:
        shown: those that the page is to have.
        chosen: how many of them somebody asked for by name or group; the others are usual ones.
        elsewhere: another source gives them too.
    """

    shown: Sequence[str]
    chosen: int
    elsewhere: bool


def check_gpus(driver: Driver, profiling: Profiling) -> list[Finding]:
    """Check `nvml.gpus`, `nvml.mig` and `nvml.profiling`, or `nvml.access` if nothing answers.

    Args:
        driver: what files tell of it.
        profiling: the fields that are looked for.
    """
    nvml = Library()
    nvml.open()
    try:
        code, count = nvml.number(_COUNT)
        gpus = [_gpu(nvml, index) for index in range(count)] if code == codes.OK else []
        answered = [gpu.code for gpu in gpus] or [code]
        if all(each == codes.UNKNOWN for each in answered):
            saw = f"every call answers {codes.name(codes.UNKNOWN)} ({codes.UNKNOWN})"
            return [CHECKS["nvml.access"].failure(_PLACE, saw, RELOADED)]
        well = [gpu for gpu in gpus if gpu.handle is not None and gpu.code == codes.OK]
        return [
            *_gpus(gpus, code, driver),
            _mig(nvml, well),
            _profiling(nvml, well, profiling),
        ]
    finally:
        nvml.close()


def _gpu(nvml: Library, index: int) -> _Gpu:
    name = f"GPU {index}"
    code, handle = nvml.handle_at(index)
    if code:
        return _Gpu(name, code, None)
    told = (nvml.text("nvmlDeviceGetName", handle), nvml.pci_bus_id(handle))
    words = [text for answer, text in told if answer == codes.OK and text]
    uuid = nvml.text("nvmlDeviceGetUUID", handle)
    # Not every card has each of these; a lost one has none.
    power = nvml.number("nvmlDeviceGetPowerUsage", handle)
    asked = [answer for answer, _ in (*told, uuid, power)]
    bad = [answer for answer in asked if answer not in codes.ALIVE]
    lost = [answer for answer in bad if answer in codes.LOST]
    return _Gpu(" ".join([name, *words]), (lost or bad or [codes.OK])[0], handle)


def _gpus(gpus: Sequence[_Gpu], code: int, driver: Driver) -> Iterable[Finding]:
    check = CHECKS["nvml.gpus"]
    if code or not gpus:
        told = f"answers {codes.name(code)} ({code})" if code else "shows no GPU"
        mend = "set NVIDIA_VISIBLE_DEVICES=all; see the kernel log (dmesg) for NVRM messages"
        return [check.failure(_PLACE, told, mend)]
    found = [
        check.failure(
            gpu.name,
            f"answers {codes.name(gpu.code)} ({gpu.code})",
            _fix_for(gpu.code),
        )
        for gpu in gpus
        if gpu.code
    ]
    if len(gpus) < len(driver.gpus):
        saw = f"shows {len(gpus)} of the {len(driver.gpus)} GPUs that the driver has"
        mend = (
            "set NVIDIA_VISIBLE_DEVICES=all; if it is, one has fallen off the bus: see the kernel "
            "log (dmesg), reset it or reboot"
        )
        found.append(check.failure(_PLACE, saw, mend))
    return found or [check.ok(_PLACE, f"{len(gpus)} GPUs answer")]


def _fix_for(code: int) -> str:
    """Return what to do about a GPU that answers so. What ends its work is for a lost one alone."""
    if code in codes.LOST:
        return (
            "see the kernel log (dmesg) for its XID, drain the node, then reset the GPU "
            "(nvidia-smi --gpu-reset) or reboot; a card that is lost again is to be replaced"
        )
    if code == codes.NO_PERMISSION:
        return (
            "let the runtime hand this GPU to the container (runtimeClassName: nvidia, "
            "NVIDIA_VISIBLE_DEVICES=all), and see that its node in /dev may be opened"
        )
    if code == codes.INSUFFICIENT_POWER:
        return "see that the card's power cables are plugged in, and the power supply of the node"
    return "see the kernel log (dmesg) for NVRM messages and its XID; nvidia-smi -q tells more"


def _mig(nvml: Library, gpus: Sequence[_Gpu]) -> Finding:
    check = CHECKS["nvml.mig"]
    pending, unseen, untold, on = [], [], [], 0
    for gpu in gpus:
        current, wanted = ctypes.c_uint(), ctypes.c_uint()
        code = nvml.ask(
            "nvmlDeviceGetMigMode", gpu.handle, ctypes.byref(current), ctypes.byref(wanted)
        )
        if code in codes.UNSUPPORTED:
            continue
        if code:
            untold.append(f"{gpu.name} answers {codes.name(code)} ({code})")
            continue
        on += current.value
        if current.value != wanted.value:
            pending.append(f"{gpu.name}: {_mode(current.value)}, to be {_mode(wanted.value)}")
        elif current.value and not _instances(nvml, gpu.handle):
            unseen.append(gpu.name)
    if pending:
        mend = (
            "drain the GPU and reset it (nvidia-smi --gpu-reset -i N), with podgpu's nvml source "
            "out of the file or podgpu stopped; or reboot"
        )
        return check.warning("MIG mode", "; ".join(pending), mend)
    if unseen:
        mend = (
            "make instances (nvidia-smi mig -cgi), or if there are some: set "
            "NVIDIA_MIG_MONITOR_DEVICES=all and run privileged"
        )
        saw = f"on, and not one instance is shown: {', '.join(unseen)}"
        return check.warning("MIG instances", saw, mend)
    if untold:
        mend = "see the kernel log (dmesg) for NVRM messages; nvidia-smi -q -d MIG tells more"
        return check.warning("MIG mode", f"can't be told: {'; '.join(untold)}", mend)
    return check.ok("MIG mode", f"on for {on} GPUs, none is pending" if on else "off")


def _mode(value: int) -> str:
    return "on" if value else "off"


def _instances(nvml: Library, handle: Handle) -> int:
    code, most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    found = 0
    for index in range(most if code == codes.OK else 0):
        box = library.handle_box()
        code = nvml.ask(
            "nvmlDeviceGetMigDeviceHandleByIndex", handle, ctypes.c_uint(index), ctypes.byref(box)
        )
        found += code == codes.OK
    return found


def _profiling(nvml: Library, gpus: Sequence[_Gpu], wanted: Profiling) -> Finding:
    check, place = CHECKS["nvml.profiling"], "nvmlGpmQueryDeviceSupport"
    if not wanted.shown:
        return check.skip(place, "no profiling field is asked for")
    if not gpus:
        return check.skip(place, "no GPU is well enough to be asked")
    lacking = [gpu.name for gpu in gpus if not _has_gpm(nvml, gpu.handle)]
    if not lacking:
        return check.ok(place, f"all GPUs have the {len(wanted.shown)} that are asked for")
    saw = f"not on this architecture: {', '.join(lacking)}"
    if wanted.elsewhere:
        return check.ok(place, f"{saw}; the source hostengine gives them")
    if not wanted.chosen:
        usual = f"{len(wanted.shown)} of the usual fields are not there, which nobody chose"
        return check.skip(place, f"{saw}; {usual}; a source of kind hostengine has them")
    mend = (
        "add a source of kind hostengine, which has them from DCGM, or take the DCGM_FI_PROF rows "
        "out of the counters file"
    )
    return check.warning(place, f"{saw}; {wanted.chosen} fields are asked for", mend)


def _has_gpm(nvml: Library, handle: Handle) -> bool:
    box = library.gpm_support_box()
    code = nvml.ask("nvmlGpmQueryDeviceSupport", handle, ctypes.byref(box))
    return code == codes.OK and bool(box.isSupportedDevice)
