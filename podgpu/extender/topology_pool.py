"""Shares one topology object between all nodes with the same shape.

A cluster has few kinds of machines. The best choice of GPUs is the same for nodes with equal links,
whatever the UUIDs. A topology has about ten kilobytes, and a cluster then needs only a few.
"""

from typing import TypeAlias
from weakref import WeakValueDictionary

from pipeline.model.topology_tree import Topology

_Shape: TypeAlias = tuple[int, bytes, tuple[int | None, ...], tuple[int, ...]]


class Shapes:
    """Returns the same object for topologies of the same shape, while it is in use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Shape, Topology] = WeakValueDictionary()

    def shared(self, topology: Topology) -> Topology:
        """Return a topology with the same links, levels and NVLink groups; UUIDs may differ."""
        return self._known.setdefault(_shape(topology), topology)

    def __len__(self) -> int:
        return len(self._known)


def _shape(topology: Topology) -> _Shape:
    # The nodes of a level follow from the links: two GPUs share a node from their link's level on.
    links = [topology.links[pair] for pair in sorted(topology.links)]
    return (
        len(topology.cards),
        bytes(link.level for link in links),
        tuple(link.nvlinks for link in links),
        tuple(domain.mask for domain in topology.domains),
    )
