"""What is known of a node's GPUs, and whether this is up to date."""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from pipeline.topology.node_annotation import Published

State: TypeAlias = Literal["fresh", "no_free", "stale", "unreadable", "none"]
STATES: Final[tuple[State, ...]] = ("fresh", "no_free", "stale", "unreadable", "none")


@dataclass(frozen=True, slots=True)
class NodeKnowledge:
    """What is known of the GPUs of a Node.

    Attributes:
        published: the content of the node's annotation; None if there is none or it is invalid.
        readable: False if the annotation is invalid.
        devices: number of allocatable devices of the GPU resources, including held ones; None if
            the Node does not report it.
        why: why there is no annotation, for messages.
    """

    published: Published | None = None
    readable: bool = True
    devices: int | None = None
    why: str = "the node has no topology annotation"

    def state(self, now: float) -> State:
        """Return the state of the annotation at a Unix time."""
        if self.published is None:
            return "none" if self.readable else "unreadable"
        if self.published.stale(now):
            return "stale"
        return "no_free" if self.published.free is None else "fresh"

    def fresh(self, now: float) -> bool:
        """Return whether the annotation is up to date, with or without free GPUs."""
        return self.state(now) in {"fresh", "no_free"}

    def with_all_free(self) -> "NodeKnowledge":
        """Return the same node, as if all of its GPUs were free."""
        if self.published is None:
            return self
        everything = self.published.topology.mask
        return replace(self, published=replace(self.published, free=everything, part=0))

    def at_hand(self, now: float) -> "AtHand | str":
        """Return the GPUs to choose from, or why this is unknown, as text."""
        published = self.published
        if published is None:
            return self.why if self.readable else "the topology annotation of the node is invalid"
        # Without the age, because the scheduler groups nodes by equal reasons.
        if published.stale(now):
            return "the topology annotation of the node is out of date"
        if published.free is None:
            return "the topology annotation of the node does not say which GPUs are free"
        count = len(published.topology.cards)
        devices = count if self.devices is None else self.devices
        if devices > count:
            return "the node offers shares of GPUs"
        return AtHand(published, published.free, published.part, count - devices)


@dataclass(frozen=True, slots=True)
class AtHand:
    """A node whose free GPUs are known.

    Attributes:
        published: the content of the node's annotation, which is fresh.
        free: mask of the GPUs without any holder.
        part: mask of the GPUs that are held in part.
        unsure: number of GPUs that are not allocatable; it is unknown which.
    """

    published: Published
    free: int
    part: int
    unsure: int = 0


NOTHING: Final = NodeKnowledge(why="the extender does not know the node")
"""For a node that is not in the list of the cluster's Nodes."""

NOT_YET: Final = NodeKnowledge(why="the extender has not listed the nodes of the cluster yet")
"""For every node before the Nodes have been listed."""
