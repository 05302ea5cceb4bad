"""What is known of a node's GPUs."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pipeline.topology.annotation import Published

State: TypeAlias = Literal["fresh", "stale", "unreadable", "none"]
STATES: Final[tuple[State, ...]] = ("fresh", "stale", "unreadable", "none")


@dataclass(frozen=True, slots=True)
class Known:
    """What a Node says of its GPUs.

    Attributes:
        published: what its annotation says; None where it has none that can be read.
        readable: False if it has one that can't be read.
        devices: how many devices of the resources in question it has, as its kubelet counts them;
            None where it doesn't say.
    """

    published: Published | None = None
    readable: bool = True
    devices: int | None = None

    def state(self, now: float) -> State:
        """Return how good this is at a Unix time."""
        if self.published is None:
            return "none" if self.readable else "unreadable"
        return "stale" if self.published.stale(now) else "fresh"

    def at_hand(self, now: float) -> "AtHand | str":
        """Return what can be chosen from, or why nothing can, for people."""
        published = self.published
        if published is None:
            if not self.readable:
                return "the node's topology can't be read"
            return "the node tells no topology"
        # No age: the scheduler counts nodes by their reasons.
        if published.stale(now):
            return "the node's topology is stale"
        if published.free is None:
            return "the node doesn't tell which GPUs are free"
        if self.devices is not None and self.devices > len(published.topology.cards):
            return "the node hands out parts of GPUs"
        return AtHand(published, published.free, published.part)


@dataclass(frozen=True, slots=True)
class AtHand:
    """A node that can be judged.

    Attributes:
        published: what it says, fresh.
        free: mask of the GPUs that nobody holds any of.
        part: mask of those that are held in part.
    """

    published: Published
    free: int
    part: int


NOTHING: Final = Known()
"""Of a node that nobody has heard of."""
