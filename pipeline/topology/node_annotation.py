"""The annotation of a Node with its topology: writing and reading its value.

The value is the topology document with its time: availability without a time is useless.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Final

import orjson

from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.document import document, mask_of_text, restored

KEY: Final = "podgpu.io/topology"
"""Key of the annotation, unless another one is configured."""

LONGEST: Final = 128 << 10
"""Limit on the characters of a value that is read; 64 GPUs take 24,000."""

_MISSED: Final = 3
"""Number of missed refreshes after which the annotation is out of date."""


@dataclass(frozen=True, slots=True)
class Published:
    """Content of an annotation.

    Attributes:
        topology: the topology of the node.
        free: mask of the GPUs without any holder; None where that is unknown.
        part: mask of the GPUs that are held in part.
        at: the time of the content, in Unix seconds.
        refresh: seconds after which the annotation is written again, changed or not.
    """

    topology: Topology
    free: int | None
    part: int
    at: float
    refresh: float

    def stale(self, now: float) -> bool:
        """Whether the annotation is out of date, at a Unix time.

        It is out of date if it was not refreshed for too long, or if its time is in the future. In
        that case the clock of the writer or of the reader is wrong, and the age is unknown.
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
        topology: the topology of the node.
        availability: which GPUs are free; None where that is unknown.
        at: the time of the content, in Unix seconds.
        refresh: seconds after which the annotation will be written again.
    """
    content = document(topology, availability)
    return orjson.dumps(content | {"at": round(at, 3), "refresh": refresh}).decode()


def published(text: str) -> Published:
    """Return the content of an annotation.

    Raises:
        ValueError: the text is no topology document, or has another version, or is too long.
    """
    if len(text) > LONGEST:
        raise ValueError(
            f"not a topology document: {len(text)} characters, at most {LONGEST} are allowed"
        )
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    topology, free = restored(content)
    try:
        at, refresh, part = (
            content["at"],
            content["refresh"],
            mask_of_text(content.get("part", "0")),
        )
    except KeyError as error:
        raise ValueError(f"not a topology document: the key {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a topology document: part: {error}") from None
    if not all(type(number) in (int, float) and isfinite(number) for number in (at, refresh)):
        raise ValueError("not a topology document: at or refresh is not a number of seconds")
    if refresh <= 0:
        raise ValueError("not a topology document: refresh is not above 0")
    if part & ~topology.mask:
        raise ValueError(f"not a topology document: part: {part:x} has bits without a GPU")
    return Published(topology, free if "free" in content else None, part, at, refresh)
