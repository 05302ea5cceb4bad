"""The place of a GPU according to sysfs: its NUMA node, and the PCIe bridges above it.

The folder of a PCI device is below the folder of the bridge to which it is connected, up to the
root complex: `/sys/devices/pci0000:64/0000:64:01.0/0000:65:00.0`.
"""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys")

_BUS_ID: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_ROOT_COMPLEX: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def folder(pci_bus_id: str, root: Path = ROOT) -> Path | None:
    """Return the folder of a PCI device; None if the text is not a bus id.

    Args:
        pci_bus_id: as NVML writes it, with a domain of eight digits in upper case.
        root: where sysfs is mounted.
    """
    found = _BUS_ID.fullmatch(pci_bus_id.lower())
    if found is None:
        return None
    domain, place, function = found.groups()
    return root / "bus/pci/devices" / f"{int(domain, 16):04x}:{place}.{function}"


def numa_node(pci_bus_id: str, root: Path = ROOT) -> int | None:
    """Return the NUMA node of a PCI device.

    Returns:
        None if the kernel does not know it, which it writes as -1, for example on a machine with
        one node whose firmware does not report it.
    """
    path = folder(pci_bus_id, root)
    if path is None:
        return None
    try:
        number = int((path / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def pcie_path(pci_bus_id: str, root: Path = ROOT) -> tuple[str, ...]:
    """Return the PCIe path of a device: its root complex, then the bridges down to it.

    Returns:
        For example `("pci0000:64", "0000:64:01.0")`; empty if unknown. It contains the root complex
        even without a bridge, so that a device directly on a root complex differs from an unknown
        one.
    """
    path = folder(pci_bus_id, root)
    if path is None:
        return ()
    try:
        parts = path.resolve(strict=True).parts
    except (OSError, RuntimeError):  # RuntimeError: symbolic links form a loop
        return ()
    # Other folders, such as a hypervisor's virtual bus, may be above the root complex.
    index = next((index for index, part in enumerate(parts) if _ROOT_COMPLEX.fullmatch(part)), None)
    return () if index is None else parts[index:-1]
