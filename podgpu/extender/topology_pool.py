"""One topology for all nodes that are built alike.

A cluster has few kinds of machines. Which GPUs to take of two that are joined in the same way is
the same choice, whatever their uuids; and a topology is some ten kilobytes, of which a cluster's
nodes then need a handful.
"""

from typing import TypeAlias
from weakref import WeakValueDictionary

from pipeline.model.topology_tree import Topology

_Shape: TypeAlias = tuple[int, bytes, tuple[int | None, ...], tuple[int, ...]]


class Shapes:
    """Gives topologies of the same shape the same object, for as long as somebody has it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Shape, Topology] = WeakValueDictionary()

    def shared(self, topology: Topology) -> Topology:
        """Return a topology with the same links, levels and NVLink groups; its names may differ."""
        return self._known.setdefault(_shape(topology), topology)

    def __len__(self) -> int:
        return len(self._known)


def _shape(topology: Topology) -> _Shape:
    # Each level's nodes follow from the links: two GPUs are in one node up from their link's level.
    links = [topology.links[pair] for pair in sorted(topology.links)]
    return (
        len(topology.cards),
        bytes(link.level for link in links),
        tuple(link.nvlinks for link in links),
        tuple(domain.mask for domain in topology.domains),
    )
