"""Checks whether NVML can be loaded and initialised.

The library is loaded by name and initialised with its C function, not through `Library`, whose
errors differ only in their text.
"""

import ctypes
import errno
import os
import re
from pathlib import Path
from typing import Final

from pipeline.base.safe_text import line
from pipeline.component.findings import Finding
from pipeline.diagnostics.context import DoctorContext, Roots
from pipeline.diagnostics.library_load import PART, try_loading
from pipeline.host.shared_libraries import NoLibraryFileError, ready
from sources.nvml import codes
from sources.nvml.checks import CHECKS
from sources.nvml.diagnosis.driver_files import Driver
from sources.nvml.library import SONAME

_FILE: Final = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)
_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_INIT: Final = "nvmlInit"
_LEAST: Final = 2.0
"""Seconds: on a busy node, the process that tries to load the library starts slowly."""
_RUNTIME: Final = (
    "run podgpu with the runtime class of NVIDIA's container toolkit (runtimeClassName: nvidia), "
    "or make that the default runtime (nvidia-ctk runtime configure); if the driver is installed "
    "in a container, mount its root and set driverRoot"
)
_WINDOWS: Final = (
    "install a Windows driver for WSL, whose library is in /usr/lib/wsl/lib; in a container, "
    "mount that folder and add it to LD_LIBRARY_PATH, or use NVIDIA's container toolkit"
)


def check_library(driver: Driver, ctx: DoctorContext) -> tuple[list[Finding], bool]:
    """Load and initialise NVML, and shut it down again.

    Returns:
        The findings of `nvml.library`, `nvml.versions`, `nvml.nodes` and `nvml.access`, and whether
        NVML can be used.
    """
    if hangs := _hangs(ctx):
        return [hangs, *_nodes(driver, ctx.roots)], False
    library, fault = _loaded()
    if library is None:
        return [_no_library(fault, driver, ctx), *_nodes(driver, ctx.roots)], False
    found = [CHECKS["nvml.library"].ok(SONAME, "found")]
    nodes = _nodes(driver, ctx.roots)
    code = int(library.nvmlInitWithFlags(0))
    if code == codes.OK:
        library.nvmlShutdown()
        found.append(CHECKS["nvml.versions"].ok(_INIT, f"matches driver {driver.version}".rstrip()))
        return [*found, *nodes], True
    return [*found, *_failed(code, driver, ctx.roots), *nodes], False


def _hangs(ctx: DoctorContext) -> Finding | None:
    """Return a failure if loading the library here would block or end this process."""
    try:
        ready(SONAME)
    except NoLibraryFileError as error:
        hint = "check what is mounted at this path"
        return CHECKS["nvml.library"].failure(SONAME, str(error), hint)
    observed, fix = try_loading(SONAME, max(_LEAST, ctx.deadline * PART))
    return CHECKS["nvml.library"].failure(SONAME, observed, fix) if observed else None


def _loaded() -> tuple[ctypes.CDLL | None, str]:
    try:
        return ctypes.CDLL(SONAME), ""
    except OSError as error:
        return None, line(str(error))


def _no_library(fault: str, driver: Driver, ctx: DoctorContext) -> Finding:
    check = CHECKS["nvml.library"]
    if driver.windows:
        observed = f"the driver is the Windows driver, and its library is missing here: {fault}"
        return check.failure(SONAME, observed, _WINDOWS)
    if not driver.loaded:
        return check.skip(SONAME, f"{fault}; it is part of the driver, which is missing")
    environ, missing_settings = ctx.environ, []
    if environ.get(_DEVICES, "void") in {"", "void", "none"}:
        missing_settings.append(f"{_DEVICES}=all")
    capabilities = set(environ.get(_CAPABILITIES, "utility").split(","))
    if not capabilities & {"all", "utility"}:
        missing_settings.append(f"{_CAPABILITIES}=utility")
    fix = f"set {' and '.join(missing_settings)}; and {_RUNTIME}" if missing_settings else _RUNTIME
    observed = f"driver {driver.version} is on the host, but its library is missing here: {fault}"
    return check.failure(SONAME, observed, fix)


def _failed(code: int, driver: Driver, roots: Roots) -> list[Finding]:
    returned = f"returned {codes.name(code)} ({code})"
    if code == codes.LIB_RM_VERSION_MISMATCH:
        library = _version() or "of another version"
        observed = f"{returned}: library {library}, driver {driver.version}"
        fix = "reload the driver or reboot the node, then restart podgpu's pod"
        return [CHECKS["nvml.versions"].failure(_INIT, observed, fix)]
    if not (driver.loaded or driver.windows) or (
        driver.loaded and code == codes.DRIVER_NOT_LOADED and not (roots.dev / "nvidiactl").exists()
    ):
        # The driver or its device files are missing, and another finding reports that.
        return [CHECKS["nvml.versions"].skip(_INIT, returned)]
    access = CHECKS["nvml.access"]
    if code == codes.UNKNOWN:
        observed = f"{returned}: cannot access the devices, but driver and library are present"
        return [access.failure(_INIT, observed, codes.RELOADED)]
    if code == codes.NO_PERMISSION:
        observed = f"{returned}: no permission to open the device files"
        fix = (
            "make the container runtime pass the devices to the container (runtimeClassName: "
            "nvidia, NVIDIA_VISIBLE_DEVICES=all); it is not enough to mount the device files"
        )
        return [access.failure(_INIT, observed, fix)]
    fix = "see the kernel log (dmesg) for NVRM messages; reload the driver or reboot the node"
    return [access.failure(_INIT, returned, fix)]


def _version() -> str:
    """Return the version of the loaded library, from the name of its file."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = _FILE.search(text)
    return match[1] if match else ""


def _nodes(driver: Driver, roots: Roots) -> list[Finding]:
    """Check `nvml.nodes`, and whether the first device file can be opened (`nvml.access`)."""
    check, control = CHECKS["nvml.nodes"], roots.dev / "nvidiactl"
    if not driver.loaded:
        reason = "the driver is the Windows driver" if driver.windows else "there is no driver"
        return [check.skip(str(control), reason)]
    wanted = [control, *(roots.dev / f"nvidia{minor}" for minor in driver.minors)]
    missing = [node for node in wanted if not node.exists()]
    if missing:
        listed = ", ".join(map(str, missing[:4])) + (", ..." if len(missing) > 4 else "")
        observed = f"{len(missing)} of {len(wanted)} are missing here: {listed}"
        fix = (
            "run podgpu with runtimeClassName: nvidia and NVIDIA_VISIBLE_DEVICES=all; if they are "
            "missing on the host too, create them with nvidia-modprobe -c 0 -u"
        )
        return [check.failure(f"{roots.dev}/nvidia*", observed, fix)]
    found = [check.ok(f"{roots.dev}/nvidia*", f"all {len(wanted)} exist")]
    return [*found, _opened(control)]


def _opened(control: Path) -> Finding:
    check = CHECKS["nvml.access"]
    try:
        _open(control)
    except OSError as error:
        observed = f"cannot be opened: {os.strerror(error.errno or 0).lower()}"
        return check.failure(str(control), observed, _FIXES.get(error.errno or 0, _UNKNOWN_FIX))
    return check.ok(str(control), "can be opened")


def _open(control: Path) -> None:
    """Open a device file as NVML does."""
    os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC))


_FIXES: Final = {
    # The device cgroup of the container denies access; wrong file modes cause EACCES.
    errno.EPERM: codes.RELOADED,
    errno.EACCES: "give podgpu's user read and write permission (the mode on the host is usually "
    "0666), or run as root",
}
_UNKNOWN_FIX: Final = (
    "see the kernel log (dmesg); check with nvidia-smi on the host whether the driver works there"
)
