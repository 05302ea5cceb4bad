"""The checks of `podgpu doctor` for the nvml source.

They check driver, library, device files, GPUs, MIG mode, profiling and visible processes.
"""

import asyncio
import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipeline.component.findings import FAILS, NONE, WARNS, Check, Finding
from pipeline.component.registry import KINDS
from pipeline.diagnostics.check_runner import timed_out
from pipeline.diagnostics.context import DoctorContext, in_thread
from pipeline.diagnostics.counters_list_check import requested_plan
from pipeline.fields import FieldPlan, Row
from pipeline.host.procfs import ROOT
from sources.nvml import codes, library, process_owners
from sources.nvml.diagnosis import library_checks
from sources.nvml.diagnosis.library_checks import ACCESS, Driver
from sources.nvml.gpm import METRICS
from sources.nvml.library import Handle, Library
from sources.nvml.options import Options

_PART: Final = 0.9
"""Part of the deadline for NVML; the rest is for checks without NVML."""
_COUNT: Final = ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")
_PLACE: Final = "NVML"


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU, and the code of its calls.

    Attributes:
        name: index, model and bus id, as far as they are known.
        code: NVML's code of the first call that failed, or that reported the GPU as lost; 0 if no
            call failed.
        handle: NVML's handle of the GPU; None if it cannot be fetched.
    """

    name: str
    code: int
    handle: Handle | None


async def examine(options: Options, ctx: DoctorContext) -> list[Finding]:
    """Run the checks `nvml.*`: driver files, library, GPUs, processes. Blocking parts use threads.

    The findings about NVML end with a failure if NVML does not respond in time.
    """
    driver = await in_thread(partial(library_checks.read_driver, ctx.roots))
    found = [driver.finding]
    # If the driver hangs, the findings from files must still be reported.
    timeout_s = ctx.deadline * _PART
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(timeout_s):
            plan = await requested_plan(ctx)
            await in_thread(partial(_check_nvml, driver, plan, ctx, findings))
    except TimeoutError:
        findings.append(timed_out("NVML", timeout_s, KINDS["source", "nvml"].timeout_fix))
    return [*found, *findings, await in_thread(partial(_processes, options, ctx))]


def _check_nvml(
    driver: Driver, plan: FieldPlan, ctx: DoctorContext, findings: list[Finding]
) -> None:
    """Open NVML as the source does and check every GPU. Blocking.

    Adds the findings about the library before it calls for the GPUs, since these calls may hang.
    """
    found, works = library_checks.check_library(driver, ctx)
    findings += found
    if works:
        findings += _check_gpus(driver, plan, has_hostengine=ctx.has("hostengine"))


def _processes(options: Options, ctx: DoctorContext) -> Finding:
    check = Check("nvml.processes", NONE)
    chosen = options.proc != ROOT
    root = options.proc if chosen else ctx.roots.proc
    place = str(root if chosen else root / "self/ns/pid")
    if not options.processes:
        return check.skip(place, "processes: false")
    reason = process_owners.hidden_reason(root, is_configured=chosen)
    if not reason:
        return check.ok(place, "the processes of the host")
    return check.skip(
        place,
        f"{reason}: the driver does not show the processes of other containers, so podgpu "
        "attributes usage by holder only, and usage of shared devices is unattributed; set "
        "hostPID: true for podgpu's pod",
    )


def _check_gpus(driver: Driver, plan: FieldPlan, *, has_hostengine: bool) -> list[Finding]:
    """Check `nvml.gpus`, `nvml.mig` and `nvml.profiling`, or `nvml.access` if all are unknown.

    Args:
        driver: what files show about the driver.
        plan: the requested fields.
        has_hostengine: whether a source of that kind is configured.
    """
    nvml = Library()
    nvml.open()
    try:
        code, count = nvml.number(_COUNT)
        gpus = [_gpu(nvml, index) for index in range(count)] if code == codes.OK else []
        answered = [gpu.code for gpu in gpus] or [code]
        if all(each == codes.UNKNOWN for each in answered):
            observed = f"every call returned {codes.name(codes.UNKNOWN)} ({codes.UNKNOWN})"
            return [ACCESS.failure(_PLACE, observed, codes.RELOADED)]
        working = [gpu for gpu in gpus if gpu.handle is not None and gpu.code == codes.OK]
        return [
            *_gpus(gpus, code, driver),
            _mig(nvml, working),
            _profiling(nvml, working, plan, has_hostengine=has_hostengine),
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
    check = Check("nvml.gpus", FAILS)
    if code or not gpus:
        queries = f"returned {codes.name(code)} ({code})" if code else "shows no GPU"
        fix = "set NVIDIA_VISIBLE_DEVICES=all; see the kernel log (dmesg) for NVRM messages"
        return [check.failure(_PLACE, queries, fix)]
    found = [
        check.failure(
            gpu.name,
            f"returned {codes.name(gpu.code)} ({gpu.code})",
            _FIXES.get(gpu.code, _OTHER_FIX),
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


# Only the fix for a lost GPU ends its workloads.
_FIXES: Final = {
    **dict.fromkeys(
        codes.LOST,
        "see the kernel log (dmesg) for its XID errors, drain the node, then reset the GPU "
        "(nvidia-smi --gpu-reset) or reboot; replace a GPU that is lost again",
    ),
    codes.NO_PERMISSION: (
        "make the container runtime pass this GPU to the container (runtimeClassName: nvidia, "
        "NVIDIA_VISIBLE_DEVICES=all), and check that its file in /dev can be opened"
    ),
    codes.INSUFFICIENT_POWER: (
        "check the power cables of the card and the power supply of the node"
    ),
}
_OTHER_FIX: Final = (
    "see the kernel log (dmesg) for NVRM messages and XID errors; nvidia-smi -q shows more"
)


def _mig(nvml: Library, gpus: Sequence[_Gpu]) -> Finding:
    check = Check("nvml.mig", WARNS)
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
            now, later = ("on", "off") if current.value else ("off", "on")
            pending.append(f"{gpu.name}: {now}, {later} after a reset")
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


def _instances(nvml: Library, handle: Handle) -> int:
    code, most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", handle)
    name = "nvmlDeviceGetMigDeviceHandleByIndex"
    return sum(
        nvml.call(name, handle, ctypes.c_uint(index), ctypes.byref(library.Device())) == codes.OK
        for index in range(most if code == codes.OK else 0)
    )


def _profiling(
    nvml: Library, gpus: Sequence[_Gpu], plan: FieldPlan, *, has_hostengine: bool
) -> Finding:
    check, place = Check("nvml.profiling", WARNS), "nvmlGpmQueryDeviceSupport"
    usual, rows = FieldPlan(), [row for row in plan.rows if row.field.name in METRICS]
    if not rows:
        return check.skip(place, "no profiling field is requested")
    if not gpus:
        return check.skip(place, "no GPU responds")
    lacking = [gpu.name for gpu in gpus if nvml.supports_gpm(gpu.handle) != (codes.OK, True)]
    if not lacking:
        return check.ok(place, f"all GPUs support the {len(rows)} requested fields")
    observed = f"not supported by the architecture of {', '.join(lacking)}"
    if has_hostengine:
        return check.ok(place, f"{observed}; the source hostengine provides the fields")
    # The others are defaults, which the configuration does not request.
    chosen = [row for row in rows if row.field.name not in usual or row != Row(row.field)]
    if not chosen:
        missing = f"{len(rows)} default fields are missing"
        return check.skip(
            place, f"{observed}; {missing}; a source of kind hostengine provides them"
        )
    fix = (
        "add a source of kind hostengine, which reads the fields from DCGM, or remove the "
        "DCGM_FI_PROF rows from the counters file"
    )
    return check.warning(place, f"{observed}; {len(chosen)} fields are requested", fix)
