"""Whether NVML can be loaded and initialised, and if not, why.

The library is loaded by its name and initialised by its own function, not through `Library`: that
tells one error from another by text alone.
"""

import ctypes
import errno
import os
import re
from pathlib import Path
from typing import Final

from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import DoctorContext, Roots
from pipeline.diagnostics.library_load import PART, try_loading
from pipeline.host.shared_libraries import NoLibraryFileError, ready
from sources.nvml import codes
from sources.nvml.diagnosis.driver_files import Driver
from sources.nvml.library import SONAME
from sources.nvml.open_errors import RELOADED

_FILE: Final = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)
_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_INIT: Final = "nvmlInit"
_LEAST: Final = 2.0
"""Seconds: on a busy node such a process takes a while to begin."""
_RUNTIME: Final = (
    "run podgpu with the runtime class of NVIDIA's container toolkit (runtimeClassName: nvidia), "
    "or make that the default runtime (nvidia-ctk runtime configure); where the driver lives in a "
    "container, mount its root and set driverRoot"
)
_WINDOWS: Final = (
    "install a Windows driver for WSL, whose library stands in /usr/lib/wsl/lib; in a container, "
    "mount that folder and put it into LD_LIBRARY_PATH, or use NVIDIA's container toolkit"
)


def check_library(driver: Driver, ctx: DoctorContext) -> tuple[list[Finding], bool]:
    """Load and initialise NVML, and shut it down again.

    Returns:
        The findings of `nvml.library`, `nvml.versions`, `nvml.nodes` and `nvml.access`, and whether
        it can be used.
    """
    if hangs := _hangs(ctx):
        return [hangs, *_nodes(driver, ctx.roots)], False
    library, fault = _loaded()
    if library is None:
        return [_no_library(fault, driver, ctx), *_nodes(driver, ctx.roots)], False
    found = [CHECKS["nvml.library"].ok(SONAME, "is here")]
    nodes = _nodes(driver, ctx.roots)
    code = int(library.nvmlInitWithFlags(0))
    if code == codes.OK:
        library.nvmlShutdown()
        found.append(CHECKS["nvml.versions"].ok(_INIT, f"fits driver {driver.version}".rstrip()))
        return [*found, *nodes], True
    return [*found, *_failed(code, driver, ctx.roots), *nodes], False


def _hangs(ctx: DoctorContext) -> Finding | None:
    """Return what is wrong with loading it, where that would take this process with it."""
    try:
        ready(SONAME)
    except NoLibraryFileError as error:
        return CHECKS["nvml.library"].failure(SONAME, str(error), "see what is mounted there")
    saw, mend = try_loading(SONAME, max(_LEAST, ctx.deadline * PART))
    return CHECKS["nvml.library"].failure(SONAME, saw, mend) if saw else None


def _loaded() -> tuple[ctypes.CDLL | None, str]:
    try:
        return ctypes.CDLL(SONAME), ""
    except OSError as error:
        return None, line(str(error))


def _no_library(fault: str, driver: Driver, ctx: DoctorContext) -> Finding:
    check = CHECKS["nvml.library"]
    if driver.windows:
        saw = f"the driver is Windows', its library isn't here: {fault}"
        return check.failure(SONAME, saw, _WINDOWS)
    if not driver.loaded:
        return check.skip(SONAME, f"{fault}; without a driver there is none")
    environ, wrong = ctx.environ, []
    if environ.get(_DEVICES, "void") in {"", "void", "none"}:
        wrong.append(f"{_DEVICES}=all")
    words = set(environ.get(_CAPABILITIES, "utility").split(","))
    if not words & {"all", "utility"}:
        wrong.append(f"{_CAPABILITIES}=utility")
    mend = f"set {' and '.join(wrong)}; and {_RUNTIME}" if wrong else _RUNTIME
    saw = f"driver {driver.version} is on the host, its library isn't here: {fault}"
    return check.failure(SONAME, saw, mend)


def _failed(code: int, driver: Driver, roots: Roots) -> list[Finding]:
    told = f"answers {codes.name(code)} ({code})"
    if code == codes.LIB_RM_VERSION_MISMATCH:
        saw = f"{told}: library {_version() or 'of another version'}, driver {driver.version}"
        mend = "reload the driver or reboot the node, then restart podgpu's pod"
        return [CHECKS["nvml.versions"].failure(_INIT, saw, mend)]
    if not (driver.loaded or driver.windows) or (
        driver.loaded and code == codes.DRIVER_NOT_LOADED and not (roots.dev / "nvidiactl").exists()
    ):
        # The driver or its nodes are what is missing, and that is said of them.
        return [CHECKS["nvml.versions"].skip(_INIT, told)]
    access = CHECKS["nvml.access"]
    if code == codes.UNKNOWN:
        saw = f"{told}: the devices are not to be had, though driver and library are here"
        return [access.failure(_INIT, saw, RELOADED)]
    if code == codes.NO_PERMISSION:
        saw = f"{told}: the device nodes may not be opened"
        mend = (
            "let the runtime hand the devices to the container (runtimeClassName: nvidia, "
            "NVIDIA_VISIBLE_DEVICES=all); device nodes that are mounted alone may not be used"
        )
        return [access.failure(_INIT, saw, mend)]
    mend = "see the kernel log (dmesg) for NVRM messages; reload the driver or reboot the node"
    return [access.failure(_INIT, told, mend)]


def _version() -> str:
    """Return the version of the library that is loaded, by the name of its file."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = _FILE.search(text)
    return match[1] if match else ""


def _nodes(driver: Driver, roots: Roots) -> list[Finding]:
    """Check `nvml.nodes`, and whether the first of them can be opened (`nvml.access`)."""
    check, control = CHECKS["nvml.nodes"], roots.dev / "nvidiactl"
    if not driver.loaded:
        why = "the driver is Windows'" if driver.windows else "there is no driver"
        return [check.skip(str(control), why)]
    wanted = [control, *(roots.dev / f"nvidia{minor}" for minor in driver.minors)]
    missing = [node for node in wanted if not node.exists()]
    if missing:
        few = ", ".join(map(str, missing[:4])) + (", ..." if len(missing) > 4 else "")
        saw = f"{len(missing)} of {len(wanted)} are missing here: {few}"
        mend = (
            "run podgpu with runtimeClassName: nvidia and NVIDIA_VISIBLE_DEVICES=all; if they are "
            "missing on the host too, nvidia-modprobe -c 0 -u or nvidia-persistenced makes them"
        )
        return [check.failure(f"{roots.dev}/nvidia*", saw, mend)]
    found = [check.ok(f"{roots.dev}/nvidia*", f"all {len(wanted)} are here")]
    return [*found, _opened(control)]


def _opened(control: Path) -> Finding:
    check = CHECKS["nvml.access"]
    try:
        _open(control)
    except OSError as error:
        saw = f"can't be opened: {os.strerror(error.errno or 0).lower()}"
        return check.failure(str(control), saw, _FIXES.get(error.errno or 0, _UNKNOWN_FIX))
    return check.ok(str(control), "can be opened")


def _open(control: Path) -> None:
    """Open a node as NVML does."""
    os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC))


_FIXES: Final = {
    # What the cgroup of the container doesn't let through; modes are another number.
    errno.EPERM: RELOADED,
    errno.EACCES: "let podgpu's user read and write it (its mode on the host is 0666 as a rule), "
    "or run as root",
}
_UNKNOWN_FIX: Final = (
    "see the kernel log (dmesg); nvidia-smi on the host tells whether it works there"
)
