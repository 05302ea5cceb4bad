"""Topologies to test with: what a source says of how GPUs are joined."""

from itertools import combinations

from pipeline.model import Device, Level, TopologyCard, TopologyPair, TopologyRead
from tests.support.nodes import Node, claim, gpu, mig


def joints(
    *devices: Device, each: int = 4, nvlinks: int = 18, memory: int | None = None
) -> TopologyRead:
    """GPUs on NVSwitches, as many at each socket.

    Args:
        devices: the GPUs, each with an index.
        each: how many there are at a socket.
        nvlinks: links to the switches; 0 for none.
        memory: bytes of each.
    """
    cards = tuple(
        TopologyCard(
            d.uuid,
            d.index,
            d.pci_bus_id,
            (d.index or 0) // each,
            (),
            nvlinks,
            memory_bytes=memory,
        )
        for d in devices
    )
    pairs = tuple(
        TopologyPair(
            a.uuid,
            b.uuid,
            Level.NODE if a.numa_node == b.numa_node else Level.SYSTEM,
            nvlinks,
            bool(nvlinks),
        )
        for a, b in combinations(cards, 2)
    )
    return TopologyRead(cards, pairs)


def busy_node(count: int = 8, *, nvlinks: int = 0) -> Node:
    """A node where a pod holds the first GPU, and another an instance of the second."""
    node = Node()
    devices = [gpu(index) for index in range(count)]
    instances = [mig(devices[1], gi, profile="3g.40gb") for gi in (1, 2)]
    node.has(*devices, *instances)
    node.say(joints(*devices, nvlinks=nvlinks))
    node.podlist(claim("train-0", devices[0].uuid), claim("serve-a", instances[0].uuid))
    return node
