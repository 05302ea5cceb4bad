"""What the annotation has to say."""

from collections.abc import Mapping

from pipeline.model import NS, Snapshot
from pipeline.topology import Availability, Topology
from pipeline.topology.annotation import annotation
from pipeline.topology_memory import memory_of


class Content:
    """Topology, availability and memory as the newest snapshot has them.

    Args:
        topology: the node's.
        snapshot: which has it.
        refresh: seconds after which the annotation is written again.
        before: what was said before, which may be the same.

    Attributes:
        substance: all that is said but for the time: equal for two that say the same.
    """

    def __init__(
        self, topology: Topology, snapshot: Snapshot, refresh: float, before: "Content | None"
    ) -> None:
        self._topology = topology
        self._availability: Availability | None = snapshot.availability
        self._memory: Mapping[str, int] = memory_of(snapshot)
        self._at = snapshot.at.wall_ns / NS
        self._refresh = refresh
        self.substance: str
        if before is not None and self._same(before):
            self.substance = before.substance
        else:
            self.substance = self._made(at=0)

    def _same(self, other: "Content") -> bool:
        return (
            self._topology is other._topology  # noqa: SLF001 -- of the same class
            and self._availability is other._availability  # noqa: SLF001
            and self._memory == other._memory  # noqa: SLF001
        )

    def text(self) -> str:
        """Return the annotation's value."""
        return self._made(at=self._at)

    def _made(self, *, at: float) -> str:
        return annotation(
            self._topology, self._availability, self._memory, at=at, refresh=self._refresh
        )
