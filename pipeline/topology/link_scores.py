"""Scores of links: how much a connection between two GPUs is worth."""

from dataclasses import dataclass
from typing import Final

from pipeline.model import Level
from pipeline.model.topology_tree import Link


@dataclass(frozen=True, slots=True)
class Scores:
    """The score table: a pair's score is that of its level plus `nvlink` for each NVLink.

    The defaults are those of NVIDIA's go-gpuallocator, which its device plugin uses. An unknown
    number of NVLinks counts as none.

    Attributes:
        internal: both are on one board.
        single: one PCIe switch.
        multiple: several PCIe switches.
        hostbridge: one host bridge.
        node: one NUMA node.
        system: across NUMA nodes.
        nvlink: for each NVLink.
    """

    internal: int = 60
    single: int = 50
    multiple: int = 40
    hostbridge: int = 30
    node: int = 20
    system: int = 10
    nvlink: int = 100

    def level(self, level: Level) -> int:
        """Return the score of a level."""
        match level:
            case Level.INTERNAL:
                return self.internal
            case Level.SINGLE:
                return self.single
            case Level.MULTIPLE:
                return self.multiple
            case Level.HOSTBRIDGE:
                return self.hostbridge
            case Level.NODE:
                return self.node
            case Level.SYSTEM:
                return self.system

    def of(self, link: Link) -> int:
        """Return the score of a pair."""
        return self.level(link.level) + self.nvlink * (link.nvlinks or 0)


DEFAULT: Final = Scores()
