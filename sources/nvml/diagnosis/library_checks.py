"""Checks of the driver, as the kernel shows it in files, and whether NVML can be initialised.

The library is loaded by name and initialised with its C function, not through `Library`: the checks
need the reason of a failure, and the errors of `Library` differ only in their text.
"""

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.base.safe_text import line
from pipeline.component.findings import FAILS, Check, Finding
from pipeline.diagnostics.context import DoctorContext, Roots
from pipeline.diagnostics.library_load import PART, try_loading
from pipeline.host.procfs import read
from pipeline.host.shared_libraries import NoLibraryFileError, ready
from sources.nvml import codes
from sources.nvml.library import SONAME

_LIBRARY: Final = Check("nvml.library", FAILS)
_VERSIONS: Final = Check("nvml.versions", FAILS)
ACCESS: Final = Check("nvml.access", FAILS)

_VERSION: Final = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)$", re.MULTILINE)
_WSL: Final = "dxg"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""Prefix of the PCI class of a GPU: display (0300) or 3D (0302)."""
_FILE: Final = re.compile(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)
_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
_CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
_INIT: Final = "nvmlInit"
_LEAST: Final = 2.0
"""Minimum timeout in seconds: on a busy node, the process that loads the library starts slowly."""
_RUNTIME: Final = (
    "run podgpu with the runtime class of NVIDIA's container toolkit (runtimeClassName: nvidia), "
    "or make that the default runtime (nvidia-ctk runtime configure); if the driver is installed "
    "in a container, mount its root and set driverRoot"
)
_WINDOWS: Final = (
    "install a Windows driver for WSL, whose library is in /usr/lib/wsl/lib; in a container, "
    "mount that folder and add it to LD_LIBRARY_PATH, or use NVIDIA's container toolkit"
)


@dataclass(frozen=True, slots=True)
class Driver:
    """What files show about the driver.

    Attributes:
        loaded: whether the kernel has loaded it.
        version: its version, such as `580.95.05`; empty if unknown.
        gpus: sorted PCI bus ids of the driver's GPUs; empty if unknown.
        minors: numbers N of the device files `/dev/nvidiaN` of the GPUs.
        finding: the result of the check `nvml.driver`.
        windows: whether it is the Windows driver, used through WSL. Then this kernel has no driver.
    """

    loaded: bool
    version: str
    gpus: tuple[str, ...]
    minors: tuple[int, ...]
    finding: Finding
    windows: bool = False


def read_driver(roots: Roots) -> Driver:
    """Return what `/proc/driver/nvidia` and `/sys/module/nvidia` show, also in a container."""
    version_file = roots.proc / "driver/nvidia/version"
    module = roots.sys / "module/nvidia/version"
    text = read(version_file)
    match = _VERSION.search(text)
    version = match[1] if match else read(module).strip()
    loaded = bool(text) or module.parent.is_dir()
    gpus, minors = _gpus(roots.proc / "driver/nvidia/gpus")
    windows = not loaded and (roots.dev / _WSL).exists()
    finding = _finding(roots, version_file, loaded, version, gpus)
    return Driver(loaded, version, gpus, minors, finding, windows)


def _finding(
    roots: Roots, version_file: Path, loaded: bool, version: str, gpus: tuple[str, ...]
) -> Finding:
    check = Check("nvml.driver", FAILS)
    if loaded:
        count_text = f", {len(gpus)} GPUs" if gpus else ""
        version_text = f"driver {version or 'of an unknown version'}"
        return check.ok(str(version_file), f"{version_text}{count_text}")
    if (roots.dev / _WSL).exists():
        return check.ok(str(roots.dev / _WSL), "the Windows driver, through WSL")
    bus = roots.sys / "bus/pci/devices"
    count = _count_on_bus(bus)
    if count == 0:
        return check.failure(
            f"{version_file}, {bus}",
            "no NVIDIA driver on the host, and no NVIDIA GPU on its PCI bus",
            "run podgpu only on nodes with a GPU (nodeSelector, affinity); for a virtual machine, "
            "pass the GPU through to it",
        )
    nouveau = (roots.sys / "module/nouveau").is_dir()
    bus_text = f"{count} NVIDIA GPUs on the PCI bus" if count else "cannot read the PCI bus"
    return check.failure(
        f"{version_file}, {roots.sys / 'module/nvidia'}",
        f"no NVIDIA driver on the host; {bus_text}"
        + ("; the driver nouveau is loaded" if nouveau else ""),
        ("blacklist nouveau, then " if nouveau else "")
        + "install the driver on the node, or load it (modprobe nvidia; dmesg shows why it fails); "
        "with the GPU operator, check that its driver pod runs",
    )


def _gpus(folder: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    found = sorted(folder.glob("*/"))
    minors = (_MINOR.search(read(each / "information")) for each in found)
    return tuple(each.name for each in found), tuple(int(each[1]) for each in minors if each)


def _count_on_bus(bus: Path) -> int | None:
    """Count the NVIDIA GPUs on the PCI bus; None if it cannot be read."""
    if not os.access(bus, os.R_OK):
        return None
    return sum(
        read(each / "vendor").strip() == _NVIDIA and read(each / "class").startswith(_DISPLAY)
        for each in bus.glob("*")
    )


def check_library(driver: Driver, ctx: DoctorContext) -> tuple[list[Finding], bool]:
    """Load and initialise NVML, and shut it down again.

    Returns:
        The findings of `nvml.library`, `nvml.versions`, `nvml.nodes` and `nvml.access`, and whether
        NVML can be used.
    """
    if hangs := _hangs(ctx):
        return [hangs, *_nodes(driver, ctx.roots)], False
    nodes = _nodes(driver, ctx.roots)
    try:
        library = ctypes.CDLL(SONAME)
    except OSError as error:
        return [_no_library(line(str(error)), driver, ctx), *nodes], False
    found = [_LIBRARY.ok(SONAME, "found")]
    code = int(library.nvmlInitWithFlags(0))
    if code == codes.OK:
        library.nvmlShutdown()
        found.append(_VERSIONS.ok(_INIT, f"matches driver {driver.version}".rstrip()))
        return [*found, *nodes], True
    return [*found, *_failed(code, driver, ctx.roots), *nodes], False


def _hangs(ctx: DoctorContext) -> Finding | None:
    """Return a failure if the file is no library, or if loading it would block or end podgpu."""
    try:
        ready(SONAME)
    except NoLibraryFileError as error:
        hint = "check what is mounted at this path"
        return _LIBRARY.failure(SONAME, str(error), hint)
    observed, fix = try_loading(SONAME, max(_LEAST, ctx.deadline * PART))
    return _LIBRARY.failure(SONAME, observed, fix) if observed else None


def _no_library(fault: str, driver: Driver, ctx: DoctorContext) -> Finding:
    if driver.windows:
        observed = f"the driver is the Windows driver, and its library is missing here: {fault}"
        return _LIBRARY.failure(SONAME, observed, _WINDOWS)
    if not driver.loaded:
        return _LIBRARY.skip(SONAME, f"{fault}; it is part of the driver, which is missing")
    environ, missing_settings = ctx.environ, []
    if environ.get(_DEVICES, "void") in {"", "void", "none"}:
        missing_settings.append(f"{_DEVICES}=all")
    capabilities = set(environ.get(_CAPABILITIES, "utility").split(","))
    if not capabilities & {"all", "utility"}:
        missing_settings.append(f"{_CAPABILITIES}=utility")
    fix = f"set {' and '.join(missing_settings)}; and {_RUNTIME}" if missing_settings else _RUNTIME
    observed = f"driver {driver.version} is on the host, but its library is missing here: {fault}"
    return _LIBRARY.failure(SONAME, observed, fix)


def _failed(code: int, driver: Driver, roots: Roots) -> list[Finding]:
    returned = f"returned {codes.name(code)} ({code})"
    if code == codes.LIB_RM_VERSION_MISMATCH:
        library = _version() or "of another version"
        observed = f"{returned}: library {library}, driver {driver.version}"
        fix = "reload the driver or reboot the node, then restart podgpu's pod"
        return [_VERSIONS.failure(_INIT, observed, fix)]
    if not (driver.loaded or driver.windows) or (
        driver.loaded and code == codes.DRIVER_NOT_LOADED and not (roots.dev / "nvidiactl").exists()
    ):
        # The driver or its device files are missing, and another finding reports that.
        return [_VERSIONS.skip(_INIT, returned)]
    if code == codes.UNKNOWN:
        observed = f"{returned}: cannot access the devices, but driver and library are present"
        return [ACCESS.failure(_INIT, observed, codes.RELOADED)]
    if code == codes.NO_PERMISSION:
        observed = f"{returned}: no permission to open the device files"
        fix = (
            "make the container runtime pass the devices to the container (runtimeClassName: "
            "nvidia, NVIDIA_VISIBLE_DEVICES=all); it is not enough to mount the device files"
        )
        return [ACCESS.failure(_INIT, observed, fix)]
    fix = "see the kernel log (dmesg) for NVRM messages; reload the driver or reboot the node"
    return [ACCESS.failure(_INIT, returned, fix)]


def _version() -> str:
    """Return the version of the loaded library, from the name of its file."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = _FILE.search(text)
    return match[1] if match else ""


def _nodes(driver: Driver, roots: Roots) -> list[Finding]:
    """Check `nvml.nodes`; if all files exist, also whether `nvidiactl` opens (`nvml.access`)."""
    check, control = Check("nvml.nodes", FAILS), roots.dev / "nvidiactl"
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
    try:
        # As NVML opens it.
        os.close(os.open(control, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        observed = f"cannot be opened: {os.strerror(error.errno or 0).lower()}"
        return ACCESS.failure(str(control), observed, _FIXES.get(error.errno or 0, _UNKNOWN_FIX))
    return ACCESS.ok(str(control), "can be opened")


_FIXES: Final = {
    # The device cgroup of the container denies access; wrong file modes cause EACCES.
    errno.EPERM: codes.RELOADED,
    errno.EACCES: "give podgpu's user read and write permission (the mode on the host is usually "
    "0666), or run as root",
}
_UNKNOWN_FIX: Final = (
    "see the kernel log (dmesg); check with nvidia-smi on the host whether the driver works there"
)
