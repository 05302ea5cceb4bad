"""Encode snapshots as OTLP requests. Pure: no I/O, no tasks, no clock."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from pipeline.base.telemetry import FamilyPoints
from pipeline.delivery.contract import Record
from pipeline.fields import FieldPlan
from pipeline.model import Attrs, Instant, Series, Snapshot
from sinks.otlp.encoding.fresh_series import Selection
from sinks.otlp.encoding.log_records import LogRecordEncoder
from sinks.otlp.encoding.own_metrics import SelfMetrics
from sinks.otlp.encoding.request_frames import end_requests
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.series_layout import SeriesLayout
from sinks.otlp.encoding.steady_time import PointOrder, WallTimeline
from sinks.otlp.encoding.usage_points import UsagePoints
from sinks.otlp.encoding.wire_format import ResourceTemplate, SeriesState, SeriesTemplate, Wire
from sinks.otlp.options import Names, Temporality

RECORD_BYTES: Final = 512 << 10
"""Approximate size of a record. A message has several records and can be split between them."""

_SELECTIONS: Final = 16
"""Maximum number of selections: sets of readings that are fresh together, such as one per tier."""


class Encoder:
    """Encodes one snapshot after the other as records.

    Only fresh readings are sent, and usage accounts when they have changed. A series that has
    ended gets a last point with the flag "no recorded value".

    An encoder that replaces another one continues its series: its points are later, and it does not
    send again what was sent. It starts all series again if names or temporality differ. For a
    different receiver it starts them again too, except with delta temporality.

    Attributes:
        not_finite: number of values that were left out because they are not finite.
        identity: names and temporality. An encoder with another identity starts other series.
        receiver: identifies the receiver.
        cache: makes the templates of series.
        self_metrics: encodes podgpu's own metrics.
        timeline: maps monotonic to wall times.
        order: assigns times to points.
        usage: encodes usage accounts.
        events: encodes events of the snapshot that was encoded last, as log records.
        states: all series of readings.

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
        self.identity = (names, self._delta)
        self.receiver = receiver
        continued = previous
        # Increments must not be counted twice, even by different receivers.
        if previous is not None and (
            previous.identity != self.identity
            or (previous.receiver != receiver and not self._delta)
        ):
            continued = None
        self._wire = Wire(schema=names == "semconv", delta=self._delta, most_bytes=most_bytes)
        self.cache: SeriesCache = SeriesCache(
            node,
            plan,
            names,
            containers=containers,
            resource=resource or {},
            wire=self._wire,
            previous=None if continued is None else continued.cache,
        )
        self.self_metrics: SelfMetrics = SelfMetrics(
            self.cache, None if continued is None else continued.self_metrics
        )
        self.order: PointOrder = PointOrder(WallTimeline()) if previous is None else previous.order
        self.timeline: WallTimeline = self.order.timeline
        self.usage: UsagePoints = UsagePoints(
            self.cache, self.order, None if continued is None else continued.usage
        )
        self.events = LogRecordEncoder(self.cache, self.usage)
        self._series_layout: SeriesLayout | None = None
        self._previous_layout = None if continued is None else continued.last_layout
        self.states: dict[tuple[ResourceTemplate, str, bytes], SeriesState] = (
            {} if continued is None else continued.states
        )
        for state in self.states.values():
            state.layout_number = 0
        self._select: Any = None
        self._previous_select: Any = None
        self._starts: tuple[Instant | None, ...] = ()

    @property
    def last_layout(self) -> SeriesLayout | None:
        """The series of the last layout; None before the first."""
        return self._series_layout or self._previous_layout

    @property
    def duplicates(self) -> int:
        """Number of values left out because another value has the same name and attributes."""
        return self._duplicates + self.usage.duplicates

    def encode(self, snapshot: Snapshot) -> list[Record]:
        """Return the records of a snapshot: ends of series, fresh readings, then usage accounts."""
        self.timeline.update(snapshot.at)
        self.order.next_message()
        requests: list[tuple[int, bytes]] = []
        ended: list[SeriesState] = []
        layout = self._series_layout
        if layout is None or layout.layout is not snapshot.layout:
            layout, ended = self._update_layout(snapshot)
        ended += self.usage.take_usage(snapshot)
        if ended:
            requests += end_requests(ended, self.order.end(), self._wire)
        self._restart(layout, snapshot.starts)
        if snapshot.fresh:
            requests += self._points(snapshot)
        requests += self.usage.points()
        return [Record(data, count, snapshot.at.wall_ns) for count, data in requests]

    def telemetry(self, at: Instant, families: Iterable[FamilyPoints]) -> Record | None:
        """Encode podgpu's own metrics; return None if there are none.

        Args:
            at: the current time.
            families: the metrics with their current values.
        """
        self.timeline.update(at)
        self.order.next_message()
        requests = self.self_metrics.requests(self.order(at.mono_ns), families)
        if not requests:
            return None
        counts, data = zip(*requests, strict=True)
        return Record(b"".join(data), sum(counts), at.wall_ns)

    def _update_layout(self, snapshot: Snapshot) -> tuple[SeriesLayout, list[SeriesState]]:
        """Apply a changed layout; return its series, and the series that have ended."""
        # Keep the previous selections alive, so that unchanged blocks can be reused.
        self._previous_select = self._select
        previous = self._series_layout
        series_layout = self._series_layout = SeriesLayout(
            snapshot.layout, self.cache, self._series_state, previous
        )
        self._select = lru_cache(_SELECTIONS)(partial(Selection, self._wire, series_layout))
        if self._previous_layout is not None:
            previous, self._previous_layout = self._previous_layout, None
            if self._delta:
                _carry_over_values(previous, series_layout)
        self._start_counters(snapshot, series_layout, previous)
        gone = [
            state for state in self.states.values() if state.layout_number != series_layout.number
        ]
        for state in gone:
            del self.states[state.template.key]
        self._starts = ()  # for the new series too
        return series_layout, [state for state in gone if state.sent]

    def _start_counters(
        self, snapshot: Snapshot, series_layout: SeriesLayout, previous: SeriesLayout | None
    ) -> None:
        """Set the start of new counters to the time at which they are known to have been 0.

        A series that only moved to another resource is not new. There the counter starts with its
        first point, because its earlier value does not belong to that container.
        """
        readings, series = snapshot.readings, snapshot.layout.series
        new = [
            (entry.state, start, _series_key(series[entry.at]))
            for entry in series_layout.counters
            if entry.state.started_ns is None
            and (start := readings[entry.at].window_start) is not None
        ]
        if not new or (self._delta and previous is None):  # it is unknown what was sent before
            return
        known = set(map(_series_key, previous.layout.series)) if previous is not None else set()
        for state, start, key in new:
            if key not in known:
                state.started_ns, state.start = start.mono_ns, self.timeline(start.mono_ns)
                state.value = 0 if self._delta else None

    def _series_state(self, template: SeriesTemplate) -> SeriesState:
        state = self.states.get(template.key)
        if state is None:
            state = self.states[template.key] = SeriesState(template)
        return state

    def _restart(self, layout: SeriesLayout, starts: tuple[Instant | None, ...]) -> None:
        """Apply counter resets, if there are new ones."""
        if starts is self._starts:
            return
        self._starts = starts
        for entry in layout.counters:
            start = starts[entry.at] if entry.at < len(starts) else None
            state = entry.state
            if start is None or state.started_ns is None or start.mono_ns <= state.started_ns:
                continue
            state.started_ns, state.value = start.mono_ns, 0
            if not self._delta:  # an increment starts at the previous point
                state.start = self.order(start.mono_ns)

    def _points(self, snapshot: Snapshot) -> Sequence[tuple[int, bytes]]:
        selection: Selection = self._select(snapshot.fresh)
        requests = selection.requests(snapshot, self.order)
        self._duplicates += selection.duplicates
        self.not_finite += selection.not_finite
        return requests


def _carry_over_values(previous: SeriesLayout, series_layout: SeriesLayout) -> None:
    """Continue increments from the last point, even if a series has a new resource or name."""
    for series, entry in series_layout.entry_by_series.items():
        previous_entry = previous.entry_by_series.get(series)
        if entry is None or previous_entry is None or entry.state.started_ns is not None:
            continue
        if entry.state.is_counter:
            now, then = entry.state, previous_entry.state
            now.started_ns, now.start, now.value = then.started_ns, then.start, then.value


def _series_key(series: Series) -> tuple[str, str, Attrs]:
    return (series.attribution.device.uuid, series.field, series.attrs)
