"""Content of the annotation."""

from dataclasses import dataclass, replace
from typing import TypeAlias

from pipeline.model import NS, Instant
from pipeline.model.availability import Availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.node_annotation import annotation

ContentKey: TypeAlias = tuple[str, bool]
"""The content without its time, and whether it is kept up to date."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Topology and availability, as in the latest snapshot.

    Attributes:
        topology: the topology of the node.
        availability: which GPUs are free; None where that is unknown.
        at: the time of this content.
        refresh: seconds after which the annotation is written again.
        is_current: a source still reports the topology. If not, the annotation is written once,
            with the time of the first such content.
        body: the annotation's value without its time.
    """

    topology: Topology
    availability: Availability | None
    at: Instant
    refresh: float
    is_current: bool
    body: str = ""

    def after(self, before: "Content | None") -> "Content":
        """Return this content with its body, or `before` if that stays valid."""
        if (
            before is None
            or self.topology is not before.topology
            or self.availability is not before.availability
        ):
            return replace(self, body=self._value(at=0))
        return replace(self, body=before.body) if self.is_current or before.is_current else before

    @property
    def substance(self) -> ContentKey:
        """Equal for two contents that differ only in time."""
        return self.body, self.is_current

    def text(self) -> str:
        """Return the annotation's value."""
        return self._value(at=self.at.wall_ns / NS)

    def _value(self, *, at: float) -> str:
        return annotation(self.topology, self.availability, at=at, refresh=self.refresh)
