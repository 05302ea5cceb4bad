"""The driver, as the kernel shows it in files."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.component.findings import Finding
from pipeline.diagnostics.check_table import CHECKS
from pipeline.diagnostics.context import Roots

_VERSION: Final = re.compile(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)$", re.MULTILINE)
_WSL: Final = "dxg"
_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""How the PCI class of a GPU begins, be it of display (0300) or of 3D (0302)."""


@dataclass(frozen=True, slots=True)
class Driver:
    """What files tell of the driver.

    Attributes:
        loaded: the kernel has it.
        version: of it, such as `580.95.05`; empty where that can't be read.
        gpus: PCI bus ids of the GPUs that it has, sorted; empty where it doesn't tell.
        minors: numbers N of the `/dev/nvidiaN` that they need.
        finding: the check `nvml.driver`.
        windows: it is Windows' own, reached through WSL: the kernel here has none.
    """

    loaded: bool
    version: str
    gpus: tuple[str, ...]
    minors: tuple[int, ...]
    finding: Finding
    windows: bool = False


def read_driver(roots: Roots) -> Driver:
    """Read `/proc/driver/nvidia` and `/sys/module/nvidia`, which containers see too."""
    told = roots.proc / "driver/nvidia/version"
    module = roots.sys / "module/nvidia/version"
    text = _text(told)
    match = _VERSION.search(text)
    version = match[1] if match else _text(module).strip()
    loaded = bool(text) or module.parent.is_dir()
    gpus, minors = _gpus(roots.proc / "driver/nvidia/gpus")
    windows = not loaded and (roots.dev / _WSL).exists()
    finding = _finding(roots, told, loaded, version, gpus)
    return Driver(loaded, version, gpus, minors, finding, windows)


def _finding(
    roots: Roots, told: Path, loaded: bool, version: str, gpus: tuple[str, ...]
) -> Finding:
    check = CHECKS["nvml.driver"]
    if loaded:
        many = f", {len(gpus)} GPUs" if gpus else ""
        return check.ok(str(told), f"driver {version or 'of an unknown version'}{many}")
    if (roots.dev / _WSL).exists():
        return check.ok(str(roots.dev / _WSL), "the driver is Windows', through WSL")
    bus = roots.sys / "bus/pci/devices"
    count = _on_the_bus(bus)
    if count == 0:
        return check.failure(
            f"{told}, {bus}",
            "no NVIDIA driver on the host, and no NVIDIA GPU on its PCI bus",
            "keep podgpu to nodes with a GPU (nodeSelector, affinity); a virtual machine needs "
            "the GPU passed through to it",
        )
    nouveau = (roots.sys / "module/nouveau").is_dir()
    here = f"{count} NVIDIA GPUs on the PCI bus" if count else "the PCI bus can't be read"
    return check.failure(
        f"{told}, {module_of(roots)}",
        f"no NVIDIA driver on the host; {here}" + ("; nouveau has them" if nouveau else ""),
        ("blacklist nouveau, then " if nouveau else "")
        + "install the driver on the node, or load it (modprobe nvidia; see dmesg why it failed); "
        "with the GPU operator see that its driver pod runs",
    )


def module_of(roots: Roots) -> Path:
    """Return where the kernel shows the driver's module."""
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


def _on_the_bus(bus: Path) -> int | None:
    """Count NVIDIA's GPUs; None where the bus can't be read."""
    try:
        devices = list(bus.iterdir())
    except OSError:
        return None
    return sum(
        _text(each / "vendor").strip() == _NVIDIA and _text(each / "class").startswith(_DISPLAY)
        for each in devices
    )
