"""Where a GPU sits, as the kernel tells it: its NUMA node, and the PCIe bridges above it.

The kernel shows each PCI device as a folder below the folder of the bridge that it hangs on, up to
its root complex: `/sys/devices/pci0000:64/0000:64:01.0/0000:65:00.0`.
"""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys")

_BUS_ID: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_ROOT_COMPLEX: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def folder(pci_bus_id: str, root: Path = ROOT) -> Path | None:
    """Return the folder of a PCI device; None for what is no bus id.

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
        None where the kernel doesn't know it, which it writes as -1, as on a machine that has but
        one and says so nowhere.
    """
    where = folder(pci_bus_id, root)
    if where is None:
        return None
    try:
        number = int((where / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def pcie_path(pci_bus_id: str, root: Path = ROOT) -> tuple[str, ...]:
    """Return what a PCI device hangs on: its root complex, then the bridges down to it.

    Returns:
        Such as `("pci0000:64", "0000:64:01.0")`; empty when unknown. The root complex is there even
        where no bridge is, so that two devices of one root can be told from two of which nothing is
        known.
    """
    where = folder(pci_bus_id, root)
    if where is None:
        return ()
    try:
        parts = where.resolve(strict=True).parts
    except (OSError, RuntimeError):  # RuntimeError: links that go round in a circle
        return ()
    # Above the root complex there may be anything, such as a hypervisor's virtual bus.
    at = next((at for at, part in enumerate(parts) if _ROOT_COMPLEX.fullmatch(part)), None)
    return () if at is None else parts[at:-1]
