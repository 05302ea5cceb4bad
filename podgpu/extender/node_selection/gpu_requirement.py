"""What the GPUs of a pod have to have in common."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from pipeline.model import Level
from pipeline.model.topology_tree import Topology


class Requirement(Enum):
    """A kind of group that all of a pod's GPUs have to be in; the values are the words for it."""

    NVLINK = "nvlink"
    SINGLE = "single"
    MULTIPLE = "multiple"
    HOSTBRIDGE = "hostbridge"
    NODE = "node"

    @property
    def title(self) -> str:
        """What such a group is called for people."""
        return _TITLES[self]

    def groups(self, topology: Topology) -> tuple[int, ...]:
        """Return the masks of a node's groups of this kind.

        A GPU that nothing is as close to is a group by itself, but none of NVLink.
        """
        if self is Requirement.NVLINK:
            return tuple(domain.mask for domain in topology.domains)
        return tuple(node.mask for node in topology.levels.get(Level[self.name], ()))


_TITLES: Final[Mapping[Requirement, str]] = MappingProxyType(
    {
        Requirement.NVLINK: "NVLink group",
        Requirement.SINGLE: "PCIe switch",
        Requirement.MULTIPLE: "group of PCIe switches",
        Requirement.HOSTBRIDGE: "PCIe host bridge",
        Requirement.NODE: "NUMA node",
    }
)

WORDS: Final = tuple(each.value for each in Requirement)
_LONGEST: Final = 40


def requirement(word: str) -> Requirement:
    """Return what a word means.

    Raises:
        ValueError: it is none of `WORDS`; the text says so, and begins with the word.
    """
    try:
        return Requirement(word)
    except ValueError:
        raise ValueError(f"{word[:_LONGEST]!r}: take one of {', '.join(WORDS)}") from None


def groups(topology: Topology, required: Requirement | None) -> tuple[int, ...]:
    """Return the masks of the groups that all GPUs of a pod have to be in one of."""
    return (topology.mask,) if required is None else required.groups(topology)
