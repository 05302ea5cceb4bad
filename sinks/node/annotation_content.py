"""Content of the annotation."""

from typing import TypeAlias

from pipeline.model import NS, Instant
from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import annotation

ContentKey: TypeAlias = tuple[str, bool]
"""The content without its time, and whether it is kept up to date."""


class Content:
    """Topology and availability, as in the latest snapshot.

    Args:
        topology: the topology of the node.
        availability: which GPUs are free; None where that is unknown.
        at: the time of this content.
        refresh: seconds after which the annotation is written again.
        before: the content before, which may be equal.
        is_current: a source still reports the topology. If not, the annotation is written once,
            with the time of the first such content.

    Attributes:
        topology: the topology of the node.
        is_current: as above.
        substance: equal for two contents that differ only in time.
    """

    def __init__(
        self,
        topology: Topology,
        availability: Availability | None,
        at: Instant,
        refresh: float,
        before: "Content | None" = None,
        *,
        is_current: bool = True,
    ) -> None:
        self.topology = topology
        self.is_current = is_current
        self._availability = availability
        self._refresh = refresh
        self._at = at
        self._body: str
        if before is not None and self._same(before):
            self._body = before._body  # noqa: SLF001 -- of the same class
            if not (is_current or before.is_current):
                self._at = before._at  # noqa: SLF001
        else:
            self._body = self._made(at=0)
        self.substance: ContentKey = (self._body, is_current)

    def _same(self, other: "Content") -> bool:
        return (
            self.topology is other.topology and self._availability is other._availability  # noqa: SLF001
        )

    def text(self) -> str:
        """Return the annotation's value."""
        return self._made(at=self._at.wall_ns / NS)

    def _made(self, *, at: float) -> str:
        return annotation(self.topology, self._availability, at=at, refresh=self._refresh)
