"""How the node's GPUs are joined, as the sources tell it, and what is free of them."""

from collections.abc import Callable, Iterable, Mapping

from pipeline.model import Attribution, TopologyRead
from pipeline.model.availability import Availability, availability
from pipeline.model.topology_tree import Topology
from pipeline.topology import build


class TopologyTable:
    """Keeps what each source said; the first in order that says anything is believed, alone.

    Attributes:
        topology: built from its word; None while no source says anything.
        source: whose word that is; empty while no source says anything.
        availability: what is free, by the holders that `recompute` was given last; None while
            no topology is known, its source is down, or it isn't known who holds what.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.source = ""
        self.availability: Availability | None = None
        self._by_source: dict[str, TopologyRead] = {}
        self._selected: TopologyRead | None = None

    def replace(self, source: str, event: TopologyRead) -> bool:
        """Take the whole word of a source; return whether it differs from the last."""
        before = self._by_source.get(source)
        if before == event:
            return False
        self._by_source[source] = event
        return True

    def remove(self, source: str) -> None:
        """Forget a source."""
        self._by_source.pop(source, None)

    def recompute(
        self,
        ranking: Iterable[str],
        attributions: Mapping[str, Attribution] | None,
        is_up: Callable[[str], bool],
    ) -> None:
        """Work out what is so now; what hasn't changed stays the same object.

        Args:
            ranking: sources, the most trusted first.
            attributions: who holds what, by device uuid; None where that isn't known.
            is_up: whether a source does its work. How the GPUs are joined stands while it doesn't;
                whether they can be had, nobody knows then.
        """
        self.source = next((name for name in ranking if name in self._by_source), "")
        believed = self._by_source.get(self.source)
        if believed is None:
            self.topology = None
        elif believed is not self._selected:
            self.topology = build(believed, self.topology)
        self._selected = believed
        if self.topology is None or attributions is None or not is_up(self.source):
            self.availability = None
        else:
            self.availability = availability(self.topology, attributions, self.availability)
