"""Scores of links: how much a connection between two GPUs is worth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.model import Level
from pipeline.model.topology_tree import Link


@dataclass(frozen=True, slots=True)
class Scores:
    """The score table. An unknown number of NVLinks counts as none.

    Attributes:
        levels: for each level.
        nvlink: for each NVLink, in addition.
    """

    levels: Mapping[Level, int]
    nvlink: int = 100

    def of(self, link: Link) -> int:
        """Return the score of a pair."""
        return self.levels[link.level] + self.nvlink * (link.nvlinks or 0)


DEFAULT: Final = Scores(
    {
        Level.INTERNAL: 60,
        Level.SINGLE: 50,
        Level.MULTIPLE: 40,
        Level.HOSTBRIDGE: 30,
        Level.NODE: 20,
        Level.SYSTEM: 10,
    }
)
"""The scores of NVIDIA's go-gpuallocator, which its device plugin uses."""
