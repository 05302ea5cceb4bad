"""Texts of foreign origin: what is too long to be true counts as unknown."""

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 512
"""Characters of a name or an id: twice what Kubernetes allows."""


def plausible(*texts: str) -> bool:
    """Whether each of these is there and no longer than it can be."""
    return all(0 < len(text) <= LONGEST for text in texts)


def names(value: str) -> list[str]:
    """Return the names that stand in a text with commas."""
    return [name.strip() for name in value.split(",")]


def names_all_gpus(cdi: Iterable[str]) -> bool:
    """Whether one of the CDI names means all GPUs, whoever's: nobody is given those."""
    return any(name.endswith("/gpu=all") for name in cdi)
