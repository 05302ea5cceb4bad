"""Limits for texts from other programs: a text that is too long counts as unknown."""

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 512
"""Maximum number of characters of a name or an id: twice what Kubernetes allows."""


def plausible(*texts: str) -> bool:
    """Whether each text is non-empty and not too long."""
    return all(0 < len(text) <= LONGEST for text in texts)


def names(value: str) -> list[str]:
    """Return the names in a comma-separated text."""
    return [name.strip() for name in value.split(",")]


def names_all_gpus(cdi: Iterable[str]) -> bool:
    """Whether one of the CDI names means all GPUs of any vendor; that is not an allocation."""
    return any(name.endswith("/gpu=all") for name in cdi)
