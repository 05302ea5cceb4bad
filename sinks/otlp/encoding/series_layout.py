"""The series of a layout, in the order in which they are sent."""

from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import chain
from operator import attrgetter

from pipeline.model import Layout, Series
from sinks.otlp.encoding.derived_series import INPUTS, SeriesEntry, of_device
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.series_state import SeriesState
from sinks.otlp.encoding.wire_format import ResourceTemplate, SeriesTemplate

_RANK = attrgetter("state.template.metric.rank")


class SeriesLayout:
    """The series of a layout.

    Attributes:
        layout: the layout.
        number: number of the layout, from 1; the states of its series have the same number.
        entry_by_series: the entry of each series; None if it is not sent.
        entries: grouped by resource and, within it, by metric.
        counters: the entries that are counters.
        duplicates: positions of readings that are left out because another has their identity.

    Args:
        layout: the layout.
        cache: makes the templates.
        state_of: returns the state for a template.
        previous: the layout before this one; None for the first.
    """

    def __init__(
        self,
        layout: Layout,
        cache: SeriesCache,
        state_of: Callable[[SeriesTemplate], SeriesState],
        previous: "SeriesLayout | None",
    ) -> None:
        self.layout = layout
        self.number: int = 1 if previous is None else previous.number + 1
        self.duplicates: list[int] = []
        self.entry_by_series: dict[Series, SeriesEntry | None] = {}
        known = previous.entry_by_series if previous is not None else {}
        all_entries: list[SeriesEntry] = []
        inputs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for at, series in enumerate(layout.series):
            uuid = series.attribution.device.uuid
            positions[uuid].append(at)
            if series.field in INPUTS and not series.attrs and series.field in cache.plan:
                inputs[uuid][series.field] = at
            entry = known.get(series)
            if entry is None and series not in known and (reading := cache.reading(series)):
                template, divisor = reading
                entry = SeriesEntry(state_of(template), at, divisor)
            if entry is not None and entry.at != at:
                entry = entry._replace(at=at)
            self.entry_by_series[series] = entry
            if entry is None:
                continue
            if entry.state.layout_number == self.number:
                self.duplicates.append(at)
                continue
            entry.state.layout_number = self.number
            all_entries.append(entry)
        for uuid, attribution in layout.attributions.items():
            device_positions = frozenset(positions[uuid])
            for entry in of_device(cache, state_of, attribution, inputs[uuid], device_positions):
                if entry.state.layout_number != self.number:
                    entry.state.layout_number = self.number
                    all_entries.append(entry)
        by_resource: dict[ResourceTemplate, list[SeriesEntry]] = {cache.on_node: []}
        for entry in all_entries:
            by_resource.setdefault(entry.state.template.resource, []).append(entry)
        for entries in by_resource.values():
            entries.sort(key=_RANK)
        self.entries = list(chain.from_iterable(by_resource.values()))
        self.counters = [
            entry
            for entry in self.entries
            if entry.state.template.metric.instrument.kind == "counter"
        ]

    def entries_for(self, fresh: Collection[int]) -> list[SeriesEntry]:
        """Return the series that have a point in a snapshot with these fresh readings."""
        if len(fresh) == len(self.layout.series):
            return self.entries
        positions = frozenset(fresh)
        return [
            entry
            for entry in self.entries
            if (
                entry.at in positions
                if entry.trigger_positions is None
                else not entry.trigger_positions.isdisjoint(positions)
            )
        ]
