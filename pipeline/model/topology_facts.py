"""Connections between a node's GPUs, as the driver reports them."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The closest part that two GPUs have in common: NVML's `nvmlGpuTopologyLevel_t`.

    A smaller value is closer. `nvidia-smi topo -m` prints SINGLE as PIX, MULTIPLE as PXB,
    HOSTBRIDGE as PHB, NODE as NODE and SYSTEM as SYS. It has no name for INTERNAL.
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
    """A physical GPU and where it is connected.

    Attributes:
        uuid: uuid of the GPU.
        index: NVML's index; None where the driver reports none.
        pci_bus_id: PCI bus id as NVML writes it, `00000000:65:00.0`; empty if unknown.
        numa_node: NUMA node of its slot; None if unknown or where there is only one.
        pcie_path: PCI addresses of the bridges above it, from the root complex down; empty if
            unknown.
        links: number of its active NVLinks; None if unknown.
        cluster: uuid of the NVLink fabric's cluster that it is registered with; empty without one.
        clique: number of the clique within that cluster; None without one.
        memory_bytes: size of its memory; None if unknown.
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
    """The connection between two GPUs. It has no direction.

    Attributes:
        a: uuid of one GPU.
        b: uuid of the other GPU.
        level: the closest part that they have in common; None where the driver gave no answer.
        nvlinks: number of NVLinks between the two: the direct links or, through switches, the
            smaller of the two GPUs' numbers of active links. 0 if there are none; None if unknown.
        reachable: whether the driver's peer-to-peer status for NVLink is OK; None if unknown.
    """

    a: str
    b: str
    level: Level | None
    nvlinks: int | None
    reachable: bool | None
