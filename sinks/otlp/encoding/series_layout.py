"""The series of a layout, in the order in which they are sent."""

from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from pipeline.model import Layout, Series
from sinks.otlp.encoding.derived_series import INPUTS, Compute, of_device
from sinks.otlp.encoding.series_cache import Cells
from sinks.otlp.encoding.series_state import Track
from sinks.otlp.encoding.wire_format import Cell, Place

_UNSEEN: Any = object()
_RANK = attrgetter("track.cell.column.rank")


class Entry(NamedTuple):
    """A series.

    Attributes:
        track: what is remembered of it.
        at: position of the reading that it shows, or whose time it has.
        divisor: of the reading's value.
        compute: works the value out, where the reading's is not it.
        late: it has the snapshot's time instead.
        wake: positions of readings: it has a point when one of them is fresh. None for `at` alone.
    """

    track: Track
    at: int
    divisor: int = 1
    compute: Compute | None = None
    late: bool = False
    wake: frozenset[int] | None = None


class Shape:
    """A layout's series.

    Attributes:
        layout: the layout.
        number: counts layouts, from 1; its tracks have it.
        made: what each series of it came to.
        entries: grouped by resource, and in it by metric.
        counters: those of them that only grow.
        doubled: positions of readings that have the same identity as another: they are left out.

    Args:
        layout: what there is to show.
        cells: makes the cells.
        follow: returns the track of a cell.
        former: of the layout before this one; None for the first.
    """

    def __init__(
        self,
        layout: Layout,
        cells: Cells,
        follow: Callable[[Cell], Track],
        former: "Shape | None",
    ) -> None:
        self.layout = layout
        self.number: int = 1 if former is None else former.number + 1
        self.doubled: list[int] = []
        self.made: dict[Series, Entry | None] = {}
        known = former.made if former is not None else {}
        found: list[Entry] = []
        told: defaultdict[str, dict[str, int]] = defaultdict(dict)
        every: defaultdict[str, list[int]] = defaultdict(list)
        for at, series in enumerate(layout.series):
            uuid = series.attribution.device.uuid
            every[uuid].append(at)
            if series.field in INPUTS and not series.attrs and series.field in cells.plan:
                told[uuid][series.field] = at
            entry = known.get(series, _UNSEEN)
            if entry is _UNSEEN:
                made = cells.reading(series)
                entry = None if made is None else Entry(follow(made[0]), at, made[1])
            if entry is not None and entry.at != at:
                entry = entry._replace(at=at)
            self.made[series] = entry
            if entry is None:
                continue
            if entry.track.shape == self.number:
                self.doubled.append(at)
                continue
            entry.track.shape = self.number
            found.append(entry)
        for uuid, attribution in layout.attributions.items():
            mine = frozenset(every[uuid])
            for cell, compute, wake, where in of_device(cells, attribution, told[uuid], mine):
                track = follow(cell)
                if track.shape != self.number:
                    track.shape = self.number
                    place = min(wake) if where is None else where
                    found.append(Entry(track, place, 1, compute, where is None, wake))
        places: dict[Place, list[Entry]] = {cells.on_node: []}
        for entry in found:
            places.setdefault(entry.track.cell.place, []).append(entry)
        for entries in places.values():
            entries.sort(key=_RANK)
        self.entries = list(chain.from_iterable(places.values()))
        self.counters = [
            entry for entry in self.entries if entry.track.cell.column.instrument.kind == "counter"
        ]

    def firing(self, fresh: Collection[int]) -> list[Entry]:
        """Return the series that have a point in a snapshot with these fresh readings."""
        if len(fresh) == len(self.layout.series):
            return self.entries
        these = frozenset(fresh)
        return [
            entry
            for entry in self.entries
            if (entry.at in these if entry.wake is None else not entry.wake.isdisjoint(these))
        ]
