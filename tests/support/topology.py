"""Build topologies for tests, as a source reports them."""

from itertools import combinations

from pipeline.model import Device, Level, TopologyCard, TopologyPair, TopologyRead
from tests.support.nodes import Node, claim, gpu, mig


def topology_read(
    *devices: Device, each: int = 4, nvlinks: int = 18, memory: int | None = None
) -> TopologyRead:
    """Return a topology of GPUs on NVSwitches, with the same number of GPUs at each socket.

    Args:
        devices: the GPUs, each with an index.
        each: the number of GPUs at a socket.
        nvlinks: the number of links to the switches; 0 for no NVLink.
        memory: bytes of each GPU.
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
    """Return a node: one pod holds the first GPU, and another a MIG instance of the second."""
    node = Node()
    devices = [gpu(index) for index in range(count)]
    instances = [mig(devices[1], gi, profile="3g.40gb") for gi in (1, 2)]
    node.has(*devices, *instances)
    node.say(topology_read(*devices, nvlinks=nvlinks))
    node.podlist(claim("train-0", devices[0].uuid), claim("serve-a", instances[0].uuid))
    return node
