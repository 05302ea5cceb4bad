"""The series of a layout, in the order in which they are sent."""

from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from pipeline.model import Layout, Series
from sinks.otlp.encoding.derived_series import INPUTS, Compute, of_device
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.series_state import SeriesState
from sinks.otlp.encoding.wire_format import ResourceTemplate, SeriesTemplate

_UNSEEN: Any = object()
_RANK = attrgetter("state.template.metric.rank")


class SeriesEntry(NamedTuple):
    """A series.

    Attributes:
        state: what is remembered of it.
        at: position of the reading that it shows, or whose time it has.
        divisor: of the reading's value.
        compute: works the value out, where the reading's is not it.
        at_snapshot: it has the snapshot's time instead.
        trigger_positions: positions of readings: it has a point when one of them is fresh. None for
            `at` alone.
    """

    state: SeriesState
    at: int
    divisor: int = 1
    compute: Compute | None = None
    at_snapshot: bool = False
    trigger_positions: frozenset[int] | None = None


class SeriesLayout:
    """A layout's series.

    Attributes:
        layout: the layout.
        number: counts layouts, from 1; its tracks have it.
        made: what each series of it came to.
        entries: grouped by resource, and in it by metric.
        counters: those of them that only grow.
        duplicates: positions of readings that have the same identity as another: they are left out.

    Args:
        layout: what there is to show.
        cache: makes the cells.
        follow: returns the track of a cell.
        previous: of the layout before this one; None for the first.
    """

    def __init__(
        self,
        layout: Layout,
        cache: SeriesCache,
        follow: Callable[[SeriesTemplate], SeriesState],
        previous: "SeriesLayout | None",
    ) -> None:
        self.layout = layout
        self.number: int = 1 if previous is None else previous.number + 1
        self.duplicates: list[int] = []
        self.made: dict[Series, SeriesEntry | None] = {}
        known = previous.made if previous is not None else {}
        found: list[SeriesEntry] = []
        told: defaultdict[str, dict[str, int]] = defaultdict(dict)
        every: defaultdict[str, list[int]] = defaultdict(list)
        for at, series in enumerate(layout.series):
            uuid = series.attribution.device.uuid
            every[uuid].append(at)
            if series.field in INPUTS and not series.attrs and series.field in cache.plan:
                told[uuid][series.field] = at
            entry = known.get(series, _UNSEEN)
            if entry is _UNSEEN:
                made = cache.reading(series)
                entry = None if made is None else SeriesEntry(follow(made[0]), at, made[1])
            if entry is not None and entry.at != at:
                entry = entry._replace(at=at)
            self.made[series] = entry
            if entry is None:
                continue
            if entry.state.layout_number == self.number:
                self.duplicates.append(at)
                continue
            entry.state.layout_number = self.number
            found.append(entry)
        for uuid, attribution in layout.attributions.items():
            mine = frozenset(every[uuid])
            for cell, compute, wake, where in of_device(cache, attribution, told[uuid], mine):
                track = follow(cell)
                if track.layout_number != self.number:
                    track.layout_number = self.number
                    place = min(wake) if where is None else where
                    found.append(SeriesEntry(track, place, 1, compute, where is None, wake))
        places: dict[ResourceTemplate, list[SeriesEntry]] = {cache.on_node: []}
        for entry in found:
            places.setdefault(entry.state.template.resource, []).append(entry)
        for entries in places.values():
            entries.sort(key=_RANK)
        self.entries = list(chain.from_iterable(places.values()))
        self.counters = [
            entry
            for entry in self.entries
            if entry.state.template.metric.instrument.kind == "counter"
        ]

    def entries_for(self, fresh: Collection[int]) -> list[SeriesEntry]:
        """Return the series that have a point in a snapshot with these fresh readings."""
        if len(fresh) == len(self.layout.series):
            return self.entries
        these = frozenset(fresh)
        return [
            entry
            for entry in self.entries
            if (
                entry.at in these
                if entry.trigger_positions is None
                else not entry.trigger_positions.isdisjoint(these)
            )
        ]
