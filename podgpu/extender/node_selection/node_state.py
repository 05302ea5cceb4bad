"""What is known of a node's GPUs."""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pipeline.topology.node_annotation import Published

State: TypeAlias = Literal["fresh", "no_free", "stale", "unreadable", "none"]
STATES: Final[tuple[State, ...]] = ("fresh", "no_free", "stale", "unreadable", "none")


@dataclass(frozen=True, slots=True)
class NodeKnowledge:
    """What a Node says of its GPUs.

    Attributes:
        published: what its annotation says; None where it has none that can be read.
        readable: False if it has one that can't be read.
        devices: how many devices of the resources in question its kubelet hands out, held ones
            counted; None where it doesn't say.
        why: why there is no annotation, for people.
    """

    published: Published | None = None
    readable: bool = True
    devices: int | None = None
    why: str = "the node tells no topology"

    def state(self, now: float) -> State:
        """Return how good this is at a Unix time."""
        if self.published is None:
            return "none" if self.readable else "unreadable"
        if self.published.stale(now):
            return "stale"
        return "no_free" if self.published.free is None else "fresh"

    def fresh(self, now: float) -> bool:
        """Return whether its annotation can be relied on, whether it says what is free or not."""
        return self.state(now) in {"fresh", "no_free"}

    def with_all_free(self) -> "NodeKnowledge":
        """Return what would be known if nobody held any of its GPUs."""
        if self.published is None:
            return self
        everything = self.published.topology.mask
        return replace(self, published=replace(self.published, free=everything, part=0))

    def at_hand(self, now: float) -> "AtHand | str":
        """Return what can be chosen from, or why nothing can, for people."""
        published = self.published
        if published is None:
            return self.why if self.readable else "the node's topology can't be read"
        # No age: the scheduler counts nodes by their reasons.
        if published.stale(now):
            return "the node's topology is stale"
        if published.free is None:
            return "the node doesn't tell which GPUs are free"
        count = len(published.topology.cards)
        devices = count if self.devices is None else self.devices
        if devices > count:
            return "the node hands out parts of GPUs"
        return AtHand(published, published.free, published.part, count - devices)


@dataclass(frozen=True, slots=True)
class AtHand:
    """A node that can be judged.

    Attributes:
        published: what it says, fresh.
        free: mask of the GPUs that nobody holds any of.
        part: mask of those that are held in part.
        unsure: how many of its GPUs are not handed out; which ones, nobody says.
    """

    published: Published
    free: int
    part: int
    unsure: int = 0


NOTHING: Final = NodeKnowledge(why="the extender has not heard of the node")
"""Of a node that isn't among those that have been heard of."""

NOT_YET: Final = NodeKnowledge(why="the extender has not heard of the cluster's nodes yet")
"""Of every node before the first list."""
