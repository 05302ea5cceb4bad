"""How a node's GPUs are joined to each other, as the driver tells it."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The closest thing that two GPUs have in common: NVML's `nvmlGpuTopologyLevel_t`.

    The smaller, the closer. The names that `nvidia-smi topo -m` prints: SINGLE is PIX, MULTIPLE is
    PXB, HOSTBRIDGE is PHB, NODE is NODE, SYSTEM is SYS; it has none for INTERNAL.
    """

    INTERNAL = 0
    """Both are on one board."""
    SINGLE = 10
    """One PCIe switch lies between them."""
    MULTIPLE = 20
    """Several PCIe switches, but no host bridge."""
    HOSTBRIDGE = 30
    """One PCIe host bridge."""
    NODE = 40
    """Several host bridges of one NUMA node."""
    SYSTEM = 50
    """The link between NUMA nodes."""


@dataclass(frozen=True, slots=True)
class TopologyCard:
    """A physical GPU and what it is plugged into.

    Attributes:
        uuid: the GPU's.
        index: NVML's; None where the driver gives none.
        pci_bus_id: as NVML writes it, `00000000:65:00.0`; empty when unknown.
        numa_node: of the slot it sits in; None when unknown or where there is but one.
        pcie_path: PCI addresses of the bridges above it, from the root complex down; empty when
            unknown.
        links: how many of its NVLinks are active; None when unknown.
        cluster: uuid of the NVLink fabric's cluster that it is registered with; empty if with none.
        clique: number of the clique within that cluster; None if it has none.
        memory_bytes: all of its memory; None when unknown.
    """

    uuid: str
    index: int | None
    pci_bus_id: str
    numa_node: int | None
    pcie_path: tuple[str, ...]
    links: int | None
    cluster: str = ""
    clique: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TopologyPair:
    """What lies between two GPUs. It has no direction.

    Attributes:
        a: uuid of the one.
        b: uuid of the other.
        level: the closest thing that they have in common; None where the driver gave no answer.
        nvlinks: NVLinks between the two: the direct ones or, through switches, as many as the one
            with fewer active links has. 0 if there are none, None when unknown.
        reachable: the driver's peer-to-peer status for NVLink is OK; None when unknown.
    """

    a: str
    b: str
    level: Level | None
    nvlinks: int | None
    reachable: bool | None
