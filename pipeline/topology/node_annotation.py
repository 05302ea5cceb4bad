"""A node's topology as it stands in an annotation of its Node: for who writes it, and who reads it.

The document, and beside it how old it is: what is free is worth nothing without that.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Final

import orjson

from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.document import document, mask_of_text, restored

KEY: Final = "podgpu.io/topology"
"""The annotation's key, unless another is configured."""

LONGEST: Final = 128 << 10
"""Characters of a value that is looked at; 64 GPUs take 24,000."""

_MISSED: Final = 3
"""After so many refreshes that didn't come nobody is believed to be at work any more."""


@dataclass(frozen=True, slots=True)
class Published:
    """What an annotation says.

    Attributes:
        topology: the node's.
        free: mask of the GPUs that nobody holds any of; None where that isn't known.
        part: mask of those that are held in part.
        at: when it was so, in Unix seconds.
        refresh: seconds after which it is written again, changed or not.
    """

    topology: Topology
    free: int | None
    part: int
    at: float
    refresh: float

    def stale(self, now: float) -> bool:
        """Whether its writer isn't to be believed any more, at a Unix time.

        It has been silent for too long, or says what will be so: then its clock is wrong, or the
        reader's, and how long it has been silent nobody knows.
        """
        return not -self.refresh <= now - self.at <= _MISSED * self.refresh


def annotation(
    topology: Topology,
    availability: Availability | None,
    *,
    at: float,
    refresh: float,
) -> str:
    """Return the annotation's value: compact JSON.

    Args:
        topology: the node's.
        availability: what is free; None where that isn't known.
        at: when that is so, in Unix seconds.
        refresh: seconds after which it will be written again.
    """
    made = document(topology, availability)
    return orjson.dumps(made | {"at": round(at, 3), "refresh": refresh}).decode()


def published(text: str) -> Published:
    """Return what an annotation says.

    Raises:
        ValueError: it isn't such a document, one of another version, or too long for one.
    """
    if len(text) > LONGEST:
        raise ValueError(f"not a topology document: {len(text)} characters are too many")
    try:
        made = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    topology, free = restored(made)
    try:
        at, refresh, part = made["at"], made["refresh"], mask_of_text(made.get("part", "0"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a topology document: {error!r}") from None
    if not all(type(number) in (int, float) and isfinite(number) for number in (at, refresh)):
        raise ValueError("not a topology document: at and refresh are not seconds")
    if refresh <= 0:
        raise ValueError("not a topology document: at and refresh are not seconds")
    if part & ~topology.mask:
        raise ValueError(f"not a topology document: {part:x} has bits that are no GPU's")
    return Published(topology, free if "free" in made else None, part, at, refresh)
