"""What the annotation has to say."""

from typing import TypeAlias

from pipeline.model import NS, Instant
from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import annotation

ContentKey: TypeAlias = tuple[str, bool]
"""What is said but for the time, and whether that goes on."""


class Content:
    """Topology and availability as the newest snapshot has them.

    Args:
        topology: the node's.
        availability: what is free; None where that isn't known.
        at: when it was so.
        refresh: seconds after which the annotation is written again.
        before: what was said before, which may be the same.
        lasting: somebody still tells of the topology. What isn't lasting is written once, and is
            as old as it was then, whatever else goes on.

    Attributes:
        topology: the node's.
        is_current: see above.
        substance: equal for two that say the same.
    """

    def __init__(
        self,
        topology: Topology,
        availability: Availability | None,
        at: Instant,
        refresh: float,
        before: "Content | None" = None,
        *,
        lasting: bool = True,
    ) -> None:
        self.topology = topology
        self.is_current = lasting
        self._availability = availability
        self._refresh = refresh
        self._at = at
        self._body: str
        if before is not None and self._same(before):
            self._body = before._body  # noqa: SLF001 -- of the same class
            if not (lasting or before.is_current):
                self._at = before._at  # noqa: SLF001
        else:
            self._body = self._made(at=0)
        self.substance: ContentKey = (self._body, lasting)

    def _same(self, other: "Content") -> bool:
        return (
            self.topology is other.topology and self._availability is other._availability  # noqa: SLF001
        )

    def text(self) -> str:
        """Return the annotation's value."""
        return self._made(at=self._at.wall_ns / NS)

    def _made(self, *, at: float) -> str:
        return annotation(self.topology, self._availability, at=at, refresh=self._refresh)
