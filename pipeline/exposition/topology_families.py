"""The families that describe how the GPUs of the node are connected, and which groups are free.

A group is a node of the topology tree with several GPUs, at any level, or an NVLink domain
(`level="nvlink"`). Its name lists the indexes of its GPUs, such as `0-3`.
"""

from collections.abc import Iterator
from typing import Final

from pipeline.exposition.naming import PageNaming
from pipeline.exposition.text_format import Format, header, labels
from pipeline.model import Snapshot
from pipeline.model.availability import Availability
from pipeline.model.bitmask import bits, ranges
from pipeline.model.topology_tree import Domain, Node, Topology

TOPOLOGY_FAMILIES: Final = (
    (
        "podgpu_topology_link_info",
        "Pairs of GPUs: the closest level that they share, and number of NVLinks; always 1.",
    ),
    ("podgpu_topology_group_gpus", "Number of GPUs in the group."),
    ("podgpu_topology_group_free_gpus", "Number of GPUs in the group that are entirely free."),
    (
        "podgpu_topology_largest_free_group_gpus",
        "Largest number of free GPUs in one group of the level.",
    ),
)

_NVLINK: Final = "nvlink"


class TopologyFamilies:
    """Renders the topology and the free GPUs when they change.

    Args:
        naming: label names, and which optional labels to add.
    """

    def __init__(self, naming: PageNaming) -> None:
        self._naming = naming
        self._topology: Topology | None = None
        self._availability: Availability | None = None
        self._lines: dict[str, list[bytes]] = {}

    def body(self, form: Format, snapshot: Snapshot) -> bytes:
        """Return the lines of the families; empty if no topology is known."""
        topology, available = snapshot.topology, snapshot.availability
        if topology is not self._topology or available is not self._availability:
            self._topology, self._availability = topology, available
            self._lines = {name: [] for name, _ in TOPOLOGY_FAMILIES}
            for name, value, given in _points(topology, available):
                label_text = labels((*given.items(), *self._naming.on_node))
                self._lines[name].append(b"%b{%b} %d\n" % (name.encode(), label_text, value))
        return b"".join(
            header(form, name, "gauge", about) + b"".join(lines)
            for name, about in TOPOLOGY_FAMILIES
            if (lines := self._lines.get(name))
        )


def _points(
    topology: Topology | None, available: Availability | None
) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield the name, value and labels of each sample."""
    if topology is None:
        return
    cards = topology.cards
    for (i, j), link in sorted(topology.links.items()):
        yield (
            "podgpu_topology_link_info",
            1,
            {
                "gpu_a": _index(cards[i].index),
                "gpu_b": _index(cards[j].index),
                "uuid_a": cards[i].uuid,
                "uuid_b": cards[j].uuid,
                "level": link.level.name.lower(),
                "nvlinks": _index(link.nvlinks),
            },
        )
    for level, group in _groups(topology):
        of_group = {"level": level, "group": group_name(topology, group.mask)}
        yield "podgpu_topology_group_gpus", group.mask.bit_count(), of_group
        if available is not None:
            free = available.free_of(group).bit_count()
            yield "podgpu_topology_group_free_gpus", free, of_group
    if available is None:
        return
    largest = {
        level.name.lower(): available.largest(nodes) for level, nodes in topology.levels.items()
    }
    if topology.domains:
        largest[_NVLINK] = available.largest(topology.domains)
    for level, count in largest.items():
        yield "podgpu_topology_largest_free_group_gpus", count, {"level": level}


def group_name(topology: Topology, mask: int) -> str:
    """Return a group's name, such as `0-3,6`. GPUs without an index are named by UUID."""
    cards = [topology.cards[number] for number in bits(mask)]
    known = ranges(card.index for card in cards if card.index is not None)
    return ",".join([*([known] if known else []), *(c.uuid for c in cards if c.index is None)])


def _groups(topology: Topology) -> Iterator[tuple[str, Node | Domain]]:
    for level, nodes in topology.levels.items():
        for node in nodes:
            if node.mask & (node.mask - 1):
                yield level.name.lower(), node
    for domain in topology.domains:
        yield _NVLINK, domain


def _index(value: int | None) -> str:
    return "" if value is None else str(value)
