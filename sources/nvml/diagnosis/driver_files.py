"""The check of the driver, as the kernel shows it in files."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.context import Roots
from sources.nvml.checks import CHECKS

_VERSION: Final = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)$", re.MULTILINE)
_WSL: Final = "dxg"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""Prefix of the PCI class of a GPU: display (0300) or 3D (0302)."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What files show about the driver.

    Attributes:
        loaded: whether the kernel has loaded it.
        version: its version, such as `580.95.05`; empty if unknown.
        gpus: sorted PCI bus ids of the driver's GPUs; empty if unknown.
        minors: numbers N of the device files `/dev/nvidiaN` of the GPUs.
        finding: the check `nvml.driver`.
        windows: whether it is the Windows driver, used through WSL; this kernel has none.
    """

    loaded: bool
    version: str
    gpus: tuple[str, ...]
    minors: tuple[int, ...]
    finding: Finding
    windows: bool = False


def read_driver(roots: Roots) -> Driver:
    """Read `/proc/driver/nvidia` and `/sys/module/nvidia`, which are visible in containers too."""
    version_file = roots.proc / "driver/nvidia/version"
    module = roots.sys / "module/nvidia/version"
    text = _text(version_file)
    match = _VERSION.search(text)
    version = match[1] if match else _text(module).strip()
    loaded = bool(text) or module.parent.is_dir()
    gpus, minors = _gpus(roots.proc / "driver/nvidia/gpus")
    windows = not loaded and (roots.dev / _WSL).exists()
    finding = _finding(roots, version_file, loaded, version, gpus)
    return Driver(loaded, version, gpus, minors, finding, windows)


def _finding(
    roots: Roots, version_file: Path, loaded: bool, version: str, gpus: tuple[str, ...]
) -> Finding:
    check = CHECKS["nvml.driver"]
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
        f"{version_file}, {module_of(roots)}",
        f"no NVIDIA driver on the host; {bus_text}" + ("; nouveau drives them" if nouveau else ""),
        ("blacklist nouveau, then " if nouveau else "")
        + "install the driver on the node, or load it (modprobe nvidia; dmesg shows why it fails); "
        "with the GPU operator, check that its driver pod runs",
    )


def module_of(roots: Roots) -> Path:
    """Return the folder of the driver's kernel module."""
    return roots.sys / "module/nvidia"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _gpus(folder: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    try:
        found = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return (), ()
    minors = (_MINOR.search(_text(each / "information")) for each in found)
    return tuple(each.name for each in found), tuple(int(each[1]) for each in minors if each)


def _count_on_bus(bus: Path) -> int | None:
    """Count the NVIDIA GPUs on the PCI bus; None if it cannot be read."""
    try:
        devices = list(bus.iterdir())
    except OSError:
        return None
    return sum(
        _text(each / "vendor").strip() == _NVIDIA and _text(each / "class").startswith(_DISPLAY)
        for each in devices
    )
