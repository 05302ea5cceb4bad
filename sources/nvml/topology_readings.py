"""The topology of the GPUs as it was read.

The place of a GPU, its NUMA node and the PCIe bridges above it, comes from sysfs. The folder of a
PCI device is below the folder of the bridge to which it is connected, up to the root complex:
`/sys/devices/pci0000:64/0000:64:01.0/0000:65:00.0`.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from pipeline.model import Device, Level, TopologyCard, TopologyPair, TopologyRead
from sources.nvml import nvlink
from sources.nvml.nvlink import Links
from sources.nvml.open_gpu import OpenGpu

SYSFS: Final = Path("/sys")

_BUS_ID: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_ROOT_COMPLEX: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Pair:
    """What the driver reports about a pair of GPUs; None for unknown."""

    level: Level | None = None
    reachable: bool | None = None


class TopologyReadings:
    """What was read about each GPU and each pair of GPUs; outlives the runs of the source.

    The data of a GPU is kept while it is down, since its place does not change. What was not read,
    or what the driver does not report, is unknown.

    Attributes:
        active_calls: pairs for which a call runs now, by uuid of the first GPU. An entry remains
            until its call returns.
        hung: pairs for which a call exceeded the deadline: not read again until one of the two
            GPUs is opened again.
    """

    def __init__(self) -> None:
        self.active_calls: dict[str, tuple[OpenGpu, OpenGpu]] = {}
        self.hung: set[tuple[OpenGpu, OpenGpu]] = set()
        self.cards: dict[str, TopologyCard] = {}
        self.links: dict[str, Links | None] = {}
        self.pairs: dict[frozenset[str], Pair] = {}

    def card(self, device: Device) -> TopologyCard:
        """Return what is known about a GPU."""
        unknown = TopologyCard(device.uuid, None, "", None, (), None)
        known = self.cards.get(device.uuid, unknown)
        return replace(known, index=device.index, pci_bus_id=device.pci_bus_id)

    def pair(self, one: str, other: str) -> Pair:
        """Return what is known about a pair of GPUs."""
        return self.pairs.get(frozenset((one, other)), Pair())

    def retain(self, uuids: Collection[str], gpus: Collection[OpenGpu]) -> None:
        """Forget the data of all GPUs but these.

        Args:
            uuids: uuids of the GPUs that the driver enumerates.
            gpus: the GPUs of these that are open.
        """
        for uuid in self.cards.keys() - set(uuids):
            del self.cards[uuid], self.links[uuid]
        self.pairs = {key: pair for key, pair in self.pairs.items() if key <= set(uuids)}
        self.hung = {pair for pair in self.hung if pair[0] in gpus and pair[1] in gpus}

    def read(self, devices: Iterable[Device]) -> TopologyRead:
        """Return the topology of some GPUs.

        Args:
            devices: the physical GPUs.
        """
        found = sorted(devices, key=lambda device: device.order)
        return TopologyRead(
            tuple([self.card(device) for device in found]),
            tuple([self._pair_of(one, other) for one, other in combinations(found, 2)]),
        )

    def _pair_of(self, one: Device, other: Device) -> TopologyPair:
        pair = self.pair(one.uuid, other.uuid)
        a, b = ((device.pci_bus_id, self.links.get(device.uuid)) for device in (one, other))
        nvlinks = nvlink.nvlink_count(a, b, pair.reachable)
        return TopologyPair(one.uuid, other.uuid, pair.level, nvlinks, pair.reachable)


def folder(pci_bus_id: str, root: Path) -> Path:
    """Return the folder of a PCI device; one that does not exist if the text is not a bus id.

    Args:
        pci_bus_id: as NVML writes it, with a domain of eight digits in upper case.
        root: where sysfs is mounted.
    """
    found = _BUS_ID.fullmatch(pci_bus_id.lower())
    place = f"{int(found[1], 16):04x}:{found[2]}.{found[3]}" if found else "unknown"
    return root / "bus/pci/devices" / place


def numa_node(pci_bus_id: str, root: Path) -> int | None:
    """Return the NUMA node of a PCI device.

    Returns:
        None if the kernel does not know it, which it writes as -1, for example on a machine with
        one node whose firmware does not report it.
    """
    try:
        number = int((folder(pci_bus_id, root) / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def pcie_path(pci_bus_id: str, root: Path) -> tuple[str, ...]:
    """Return the PCIe path of a device: its root complex, then the bridges down to it.

    Returns:
        For example `("pci0000:64", "0000:64:01.0")`; empty if unknown. It contains the root complex
        even without a bridge, so that a device directly on a root complex differs from an unknown
        one.
    """
    try:
        parts = folder(pci_bus_id, root).resolve(strict=True).parts
    except (OSError, RuntimeError):  # RuntimeError: symbolic links form a loop
        return ()
    # Other folders, such as a hypervisor's virtual bus, may be above the root complex.
    index = next((index for index, part in enumerate(parts) if _ROOT_COMPLEX.fullmatch(part)), None)
    return () if index is None else parts[index:-1]
