"""The requirement of a pod that its GPUs are in one group, such as an NVLink group."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from pipeline.model import Level
from pipeline.model.topology_tree import Topology


class Requirement(Enum):
    """A kind of group that must contain all GPUs of a pod; the values are used in annotations."""

    NVLINK = "nvlink"
    SINGLE = "single"
    MULTIPLE = "multiple"
    HOSTBRIDGE = "hostbridge"
    NODE = "node"

    @property
    def title(self) -> str:
        """The name of such a group in messages."""
        return _TITLES[self]

    def groups(self, topology: Topology) -> tuple[int, ...]:
        """Return the masks of a node's groups of this kind.

        A GPU without close neighbours is a group of its own, but not an NVLink group.
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
    """Return the requirement for the value of an annotation.

    Raises:
        ValueError: the value is not in `WORDS`; the text starts with the value.
    """
    try:
        return Requirement(word)
    except ValueError:
        raise ValueError(f"{word[:_LONGEST]!r}: use one of {', '.join(WORDS)}") from None


def groups(topology: Topology, required: Requirement | None) -> tuple[int, ...]:
    """Return the masks of the groups of which one must contain all GPUs of a pod."""
    return (topology.mask,) if required is None else required.groups(topology)
