"""Encode snapshots as OTLP requests. Pure: no I/O, no tasks, no clock."""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.base.telemetry import FamilyPoints
from pipeline.changes.change_feed import Changes
from pipeline.delivery.contract import Record
from pipeline.fields import FieldPlan
from pipeline.model import Attrs, Instant, Series, Snapshot, Value
from sinks.otlp.encoding.fresh_series import Selection, finite
from sinks.otlp.encoding.log_records import EventRecords
from sinks.otlp.encoding.own_metrics import SelfMetrics
from sinks.otlp.encoding.request_frames import Blocks
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.series_layout import SeriesEntry, SeriesLayout
from sinks.otlp.encoding.series_state import SeriesState, end_requests
from sinks.otlp.encoding.steady_time import PointOrder, WallTimeline
from sinks.otlp.encoding.usage_points import UsagePoints
from sinks.otlp.encoding.wire_format import ResourceTemplate, SeriesTemplate, Wire
from sinks.otlp.options import Names, Temporality

RECORD_BYTES: Final = 512 << 10
"""Approximate size of a record. A message has several records and can be split between them."""

_SELECTIONS: Final = 16
"""Maximum number of selections: sets of readings that are fresh together, such as one per tier."""


class _EncoderState(NamedTuple):
    """What a new encoder needs to continue the series of the previous one.

    Attributes:
        identity: names and temporality; if they differ, the series are different ones.
        receiver: the receiver of the messages.
        layout: the series of the last layout; None before the first.
        states: all series of readings.
    """

    identity: tuple[Names, bool]
    receiver: object
    timeline: WallTimeline
    order: PointOrder
    cache: SeriesCache
    self_metrics: SelfMetrics
    usage: UsagePoints
    layout: SeriesLayout | None
    states: dict[tuple[ResourceTemplate, str, bytes], SeriesState]


class Encoder:
    """Encodes one snapshot after the other as records.

    Only fresh readings are sent, and usage accounts when they have changed. A series that has
    ended gets a last point with the flag "no recorded value".

    An encoder that replaces another one continues its series: its points are later, and it does not
    send again what was sent. It starts all series again if names or temporality differ. For a
    different receiver it starts them again too, except with delta temporality.

    Attributes:
        not_finite: number of values that were left out because they are not finite.

    Args:
        node: the node's name.
        plan: fields to send; others are left out.
        names: naming scheme of the metrics.
        containers: whether readings of a device with one holder are in the holder's resource.
        resource: attributes that are added to every resource.
        temporality: whether counters are sent as totals or as increments. `lowmemory` is the same
            as `cumulative` here: devices report totals.
        most_bytes: approximate size of a record.
        receiver: identifies the receiver.
        previous: the encoder to replace; it must not be used any more.
    """

    def __init__(
        self,
        node: str,
        plan: FieldPlan,
        *,
        names: Names = "semconv",
        containers: bool = True,
        resource: Mapping[str, str] | None = None,
        temporality: Temporality = "cumulative",
        most_bytes: int = RECORD_BYTES,
        receiver: object = None,
        previous: "Encoder | None" = None,
    ) -> None:
        self.not_finite = 0
        self._duplicates = 0
        self._delta = temporality == "delta"
        self._identity = (names, self._delta)
        self._receiver = receiver
        predecessor = None if previous is None else previous.handover()
        continued = (
            predecessor if predecessor is not None and self._can_continue(predecessor) else None
        )
        self._wire = Wire(schema=names == "semconv", delta=self._delta, most_bytes=most_bytes)
        self._cache = SeriesCache(
            node,
            plan,
            names,
            containers=containers,
            resource=resource or {},
            wire=self._wire,
            previous=None if continued is None else continued.cache,
        )
        self._blocks = Blocks(self._wire)
        self._self_metrics = SelfMetrics(
            self._cache.on_node.front,
            self._wire,
            delta=self._delta,
            page=names == "dcgm",
            previous=None if continued is None else continued.self_metrics,
        )
        self._timeline = WallTimeline() if predecessor is None else predecessor.timeline
        self._order = PointOrder(self._timeline) if predecessor is None else predecessor.order
        self._usage = UsagePoints(
            self._cache,
            self._blocks,
            self._timeline,
            self._order,
            delta=self._delta,
            previous=None if continued is None else continued.usage,
        )
        self._events = EventRecords(self._cache, self._usage)
        self._series_layout: SeriesLayout | None = None
        self._previous_layout = None if continued is None else continued.layout
        self._states: dict[tuple[ResourceTemplate, str, bytes], SeriesState] = (
            {} if continued is None else continued.states
        )
        for state in self._states.values():
            state.layout_number = 0
        self._selections: dict[tuple[int, ...], Selection] = {}
        self._previous_selections: dict[tuple[int, ...], Selection] = {}
        self._starts: tuple[Instant | None, ...] = ()
        self._start_version = 0

    def handover(self) -> _EncoderState:
        """Return the state for an encoder that replaces this one, which must not be used again."""
        for selection in self._selections.values():
            selection.record_times()
        return _EncoderState(
            self._identity,
            self._receiver,
            self._timeline,
            self._order,
            self._cache,
            self._self_metrics,
            self._usage,
            self._series_layout or self._previous_layout,
            self._states,
        )

    def _can_continue(self, other: _EncoderState) -> bool:
        """Whether the receiver can interpret this encoder's points as a continuation."""
        # Increments must not be counted twice, even by different receivers.
        return other.identity == self._identity and (
            self._delta or other.receiver == self._receiver
        )

    @property
    def duplicates(self) -> int:
        """Number of values left out because another value has the same name and attributes."""
        return self._duplicates + self._usage.duplicates

    @property
    def clock_steps(self) -> int:
        """How often the wall clock was set by more than half a second."""
        return self._timeline.steps

    def encode(self, snapshot: Snapshot) -> list[Record]:
        """Encode a snapshot.

        The order is: ends of series, fresh readings, usage accounts.
        """
        self._timeline.update(snapshot.at)
        self._order.next_message()
        requests: list[tuple[int, bytes]] = []
        layout_changed = (
            self._series_layout is None or self._series_layout.layout is not snapshot.layout
        )
        ended = [
            *(self._update_layout(snapshot) if layout_changed else ()),
            *self._usage.take_usage(snapshot),
        ]
        if ended:
            requests += end_requests(ended, self._order.end(), self._wire)
        if layout_changed or snapshot.starts is not self._starts:
            self._restart(snapshot.starts)
        if snapshot.fresh:
            requests += self._points(snapshot)
        requests += self._usage.points()
        return [Record(data, count, snapshot.at.wall_ns) for count, data in requests]

    def events(self, snapshot: Snapshot, events: Changes) -> list[Record]:
        """Encode events as log records.

        Args:
            snapshot: the snapshot that was encoded last.
            events: the events up to that snapshot.
        """
        return self._events.records(snapshot, events.holdings, events.errors)

    def telemetry(self, at: Instant, families: Iterable[FamilyPoints]) -> Record | None:
        """Encode podgpu's own metrics; return None if there are none.

        Args:
            at: the current time.
            families: the metrics with their current values.
        """
        self._timeline.update(at)
        self._order.next_message()
        data, count = self._self_metrics.request(self._order(at.mono_ns), families)
        return Record(data, count, at.wall_ns) if count else None

    def _update_layout(self, snapshot: Snapshot) -> Sequence[SeriesState]:
        """Apply a changed layout; return the series that have ended."""
        for selection in self._selections.values():
            selection.record_times()
        # Keep the previous selections alive, so that unchanged blocks can be reused.
        self._previous_selections, self._selections = self._selections, {}
        previous = self._series_layout
        series_layout = self._series_layout = SeriesLayout(
            snapshot.layout, self._cache, self._series_state, previous
        )
        if self._previous_layout is not None:
            previous, self._previous_layout = self._previous_layout, None
            if self._delta:
                _carry_over_values(previous, series_layout)
        self._start_counters(snapshot, series_layout, previous)
        gone = {
            key: state
            for key, state in self._states.items()
            if state.layout_number != series_layout.number
        }
        for key in gone:
            del self._states[key]
        return [state for state in gone.values() if state.last is not None]

    def _start_counters(
        self, snapshot: Snapshot, series_layout: SeriesLayout, previous: SeriesLayout | None
    ) -> None:
        """Set the start of new counters to the time at which they are known to have been 0.

        A series that only moved to another resource is not new. There the counter starts with its
        first point, because its earlier value does not belong to that container.
        """
        readings = snapshot.readings
        new = [
            entry
            for entry in series_layout.counters
            if entry.state.started_ns is None and readings[entry.at].window_start is not None
        ]
        if not new:
            return
        known = (
            set()
            if previous is None
            else {_series_key(series) for series in previous.layout.series}
        )
        for entry in new:
            start, state = readings[entry.at].window_start, entry.state
            if start is None or _series_key(snapshot.layout.series[entry.at]) in known:
                continue
            if self._delta:
                if previous is None:  # it is unknown what was sent before
                    continue
                state.value = 0
            state.started_ns, state.start = start.mono_ns, self._timeline(start.mono_ns)

    def _series_state(self, template: SeriesTemplate) -> SeriesState:
        state = self._states.get(template.key)
        if state is None:
            state = self._states[template.key] = SeriesState(template)
        return state

    def _restart(self, starts: tuple[Instant | None, ...]) -> None:
        """Apply counter resets."""
        self._starts = starts
        if self._series_layout is None:
            return
        for entry in self._series_layout.counters:
            start = starts[entry.at] if entry.at < len(starts) else None
            state = entry.state
            if start is None or state.started_ns is None or start.mono_ns <= state.started_ns:
                continue
            state.started_ns, state.value = start.mono_ns, 0
            if not self._delta:  # an increment starts at the previous point
                state.start = self._order(start.mono_ns)
            self._start_version += 1

    def _points(self, snapshot: Snapshot) -> Sequence[tuple[int, bytes]]:
        selection = self._selection(snapshot)
        self._duplicates += selection.duplicates
        if not selection.entries:
            return ()
        raw = selection.values(snapshot)
        values = self._increments(selection, raw) if self._delta else raw
        selection.scale(values)
        selection.use_default_template(self._blocks)
        if not selection.template_fits(values):
            self.not_finite += selection.choose_template(values, self._blocks)
        times = selection.times(snapshot, self._order)
        try:
            requests = self._pack(selection, snapshot, times, values)
        except (struct.error, OverflowError):  # the type of a value has changed
            self.not_finite += selection.choose_template(values, self._blocks)
            requests = self._pack(selection, snapshot, times, values)
        if self._delta:
            self._store_values(selection, raw, times)
        return requests

    def _selection(self, snapshot: Snapshot) -> Selection:
        found = self._selections.pop(snapshot.fresh, None)
        if found is None:
            if len(self._selections) >= _SELECTIONS:
                self._selections.pop(next(iter(self._selections))).record_times()
            if self._series_layout is None:
                raise RuntimeError("there is no layout to select from")
            found = Selection(self._series_layout, snapshot.fresh)
        self._selections[snapshot.fresh] = found
        return found

    def _pack(
        self,
        selection: Selection,
        snapshot: Snapshot,
        times: Sequence[int],
        values: Sequence[Value | None],
    ) -> Sequence[tuple[int, bytes]]:
        template = selection.template
        if template is None:
            return ()
        entries: Sequence[SeriesEntry] = selection.entries
        if template.pick is not None:
            times = [times[at] for at in template.pick]
            values = [values[at] for at in template.pick]
            entries = [entries[at] for at in template.pick]
        if template.is_unused:
            for entry, time in zip(entries, times, strict=True):
                state = entry.state
                if state.started_ns is None:
                    at = snapshot.at if entry.at_snapshot else snapshot.readings[entry.at].at
                    state.started_ns, state.start = at.mono_ns, time
        return template.pack(times, values, self._start_version)

    @staticmethod
    def _increments(selection: Selection, raw: Sequence[Value | None]) -> list[Value | None]:
        """Return the values, with increments instead of totals for counters; 0 at first."""
        values = list(raw)
        for at in selection.counters:
            value, before = values[at], selection.entries[at].state.value
            if value is None:
                continue
            if finite(value) is None:
                values[at] = math.inf
            elif before is None:
                values[at] = 0
            elif value >= before:
                values[at] = value - before
        return values

    def _store_values(
        self, selection: Selection, raw: Sequence[Value | None], times: Sequence[int]
    ) -> None:
        """Store the values from which the next increments are computed."""
        template = selection.template
        if template is None:
            return
        for at in selection.counters:
            if at not in template.omitted:
                state = selection.entries[at].state
                state.value, state.start = raw[at], times[at]
        self._start_version += 1


def _carry_over_values(previous: SeriesLayout, series_layout: SeriesLayout) -> None:
    """Continue increments from the last point, even if a series has a new resource or name."""
    for series, entry in series_layout.entry_by_series.items():
        previous_entry = previous.entry_by_series.get(series)
        if entry is None or previous_entry is None or entry.state.started_ns is not None:
            continue
        if entry.state.template.metric.instrument.kind == "counter":
            now, then = entry.state, previous_entry.state
            now.started_ns, now.start, now.value = then.started_ns, then.start, then.value


def _series_key(series: Series) -> tuple[str, str, Attrs]:
    return (series.attribution.device.uuid, series.field, series.attrs)
