"""Topology of the node's GPUs, by the sources' reports, and which GPUs are free."""

from collections.abc import Callable, Iterable, Mapping

from pipeline.model import Attribution, TopologyRead
from pipeline.model.availability import Availability, availability
from pipeline.model.topology_tree import Topology
from pipeline.topology.tree_builder import build


class TopologyTable:
    """Keeps the report of each source. Only the report of the first source in order is used.

    Attributes:
        topology: the topology by the report that is used; None without reports.
        source: name of the source of that report; empty without reports.
        availability: which GPUs are free, by the holders at the last `recompute`; None while no
            topology is known, its source is down, or the holders are unknown.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.source = ""
        self.availability: Availability | None = None
        self._by_source: dict[str, TopologyRead] = {}
        self._selected: TopologyRead | None = None

    def replace(self, source: str, event: TopologyRead) -> bool:
        """Replace the report of a source; return whether it changed."""
        before = self._by_source.get(source)
        self._by_source[source] = event
        return before != event

    def remove(self, source: str) -> None:
        """Remove the report of a source."""
        self._by_source.pop(source, None)

    def recompute(
        self,
        ranking: Iterable[str],
        attributions: Mapping[str, Attribution] | None,
        is_up: Callable[[str], bool],
    ) -> None:
        """Recalculate topology and availability; the objects stay the same without a change.

        Args:
            ranking: the sources, in the order of the configuration.
            attributions: by device uuid, as far as the holders are known; None if they are not.
            is_up: returns whether a source is up. While the source is down its topology stays
                valid, but it is unknown which GPUs are available.
        """
        self.source = next((name for name in ranking if name in self._by_source), "")
        selected = self._by_source.get(self.source)
        if selected is not self._selected:
            self.topology = None if selected is None else build(selected, self.topology)
            self._selected = selected
        if self.topology is None or attributions is None or not is_up(self.source):
            self.availability = None
        else:
            self.availability = availability(self.topology, attributions, self.availability)
