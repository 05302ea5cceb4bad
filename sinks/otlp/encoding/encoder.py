"""Snapshots turned into requests. Pure: no I/O, no tasks, no clock."""

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
"""Bytes of a record, about. A message is made of several, and can be split between them."""

_SELECTIONS: Final = 16
"""Sets of readings that come together: one for each tier, one for each source, and so on."""


class _EncoderState(NamedTuple):
    """What an encoder has told, and how.

    Attributes:
        sort: what makes its series others than those of another.
        receiver: whom it was told.
        shape: the series of the last layout; None where there was none so far.
        tracks: all series of readings.
    """

    sort: tuple[Names, bool]
    receiver: object
    timeline: WallTimeline
    order: PointOrder
    cells: SeriesCache
    own: SelfMetrics
    usage: UsagePoints
    shape: SeriesLayout | None
    tracks: dict[tuple[ResourceTemplate, str, bytes], SeriesState]


class Encoder:
    """Turns snapshots into records, each one in turn.

    Only what is fresh is sent, and an account of usage when it is another one. A series that was
    sent and is there no more gets one last point that says so.

    One that takes another's place goes on where that was: its points come after those of the other,
    and what that has told isn't told again. It tells all anew where names or temporality are
    others, and a receiver that is another one gets counters anew that are sent as they stand.

    Attributes:
        not_finite: values that were left out because they are no finite numbers.

    Args:
        node: the node's name.
        plan: fields that are not in it are left out.
        names: whose names the metrics have.
        containers: whether readings of a device that one container holds stand in its resource.
        resource: attributes that are added to every resource.
        temporality: whether counters are sent as they stand or as increments. `lowmemory` is
            `cumulative` here: what is read off a device is its total.
        most_bytes: of a record, about.
        receiver: what tells the receiver from others.
        previous: the one whose place this takes; it isn't to be used any more.
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
        self._sort = (names, self._delta)
        self._receiver = receiver
        last = None if previous is None else previous.handover()
        before = last if last is not None and self._can_continue(last) else None
        self._wire = Wire(schema=names == "semconv", delta=self._delta, most_bytes=most_bytes)
        self._cache = SeriesCache(
            node,
            plan,
            names,
            containers=containers,
            resource=resource or {},
            wire=self._wire,
            previous=None if before is None else before.cells,
        )
        self._blocks = Blocks(self._wire)
        self._self_metrics = SelfMetrics(
            self._cache.on_node.front,
            self._wire,
            delta=self._delta,
            page=names == "dcgm",
            previous=None if before is None else before.own,
        )
        self._timeline = WallTimeline() if last is None else last.timeline
        self._order = PointOrder(self._timeline) if last is None else last.order
        self._usage = UsagePoints(
            self._cache,
            self._blocks,
            self._timeline,
            self._order,
            delta=self._delta,
            previous=None if before is None else before.usage,
        )
        self._events = EventRecords(self._cache, self._usage)
        self._shape: SeriesLayout | None = None
        self._before = None if before is None else before.shape
        self._tracks: dict[tuple[ResourceTemplate, str, bytes], SeriesState] = (
            {} if before is None else before.tracks
        )
        for track in self._tracks.values():
            track.layout_number = 0
        self._selections: dict[tuple[int, ...], Selection] = {}
        self._previous: dict[tuple[int, ...], Selection] = {}
        self._starts: tuple[Instant | None, ...] = ()
        self._started = 0

    def handover(self) -> _EncoderState:
        """Return what another needs that goes on. This one isn't to be used any more."""
        for selection in self._selections.values():
            selection.record_times()
        return _EncoderState(
            self._sort,
            self._receiver,
            self._timeline,
            self._order,
            self._cache,
            self._self_metrics,
            self._usage,
            self._shape or self._before,
            self._tracks,
        )

    def _can_continue(self, reported: _EncoderState) -> bool:
        """Whether what was told means to the receiver what it would mean from this one."""
        # What was sent as an increment would be counted twice, whoever the receiver is.
        return reported.sort == self._sort and (self._delta or reported.receiver == self._receiver)

    @property
    def duplicates(self) -> int:
        """How many values were left out because another has their name and attributes."""
        return self._duplicates + self._usage.duplicates

    @property
    def clock_steps(self) -> int:
        """How often the wall clock was set by more than half a second."""
        return self._timeline.steps

    def encode(self, snapshot: Snapshot) -> list[Record]:
        """Return what a snapshot has to say.

        Ends of series come first, then fresh readings, then accounts of usage.
        """
        self._timeline.update(snapshot.at)
        self._order.next_message()
        made: list[tuple[int, bytes]] = []
        moved = self._shape is None or self._shape.layout is not snapshot.layout
        ended = [
            *(self._update_layout(snapshot) if moved else ()),
            *self._usage.take_usage(snapshot),
        ]
        if ended:
            made += end_requests(ended, self._order.end(), self._wire)
        if moved or snapshot.starts is not self._starts:
            self._restart(snapshot.starts)
        if snapshot.fresh:
            made += self._points(snapshot)
        made += self._usage.points()
        return [Record(data, count, snapshot.at.wall_ns) for count, data in made]

    def events(self, snapshot: Snapshot, events: Changes) -> list[Record]:
        """Return log records of what has happened.

        Args:
            snapshot: the one that was encoded last.
            events: what happened up to then.
        """
        return self._events.records(snapshot, events.holdings, events.errors)

    def telemetry(self, at: Instant, families: Iterable[FamilyPoints]) -> Record | None:
        """Return podgpu's own metrics; None if there are none.

        Args:
            at: the present moment.
            families: as they are then.
        """
        self._timeline.update(at)
        self._order.next_message()
        data, count = self._self_metrics.request(self._order(at.mono_ns), families)
        return Record(data, count, at.wall_ns) if count else None

    def _update_layout(self, snapshot: Snapshot) -> Sequence[SeriesState]:
        """Follow a change of the layout; return the series that have ended."""
        for selection in self._selections.values():
            selection.record_times()
        # What was laid out for them is used again where nothing of it has changed.
        self._previous, self._selections = self._selections, {}
        former = self._shape
        shape = self._shape = SeriesLayout(snapshot.layout, self._cache, self._series_state, former)
        if self._before is not None:
            former, self._before = self._before, None
            if self._delta:
                _carry_over_values(former, shape)
        self._start_counters(snapshot, shape, former)
        gone = {
            key: track for key, track in self._tracks.items() if track.layout_number != shape.number
        }
        for key in gone:
            del self._tracks[key]
        return [track for track in gone.values() if track.last is not None]

    def _start_counters(
        self, snapshot: Snapshot, shape: SeriesLayout, former: SeriesLayout | None
    ) -> None:
        """Let counters begin where they are known to have stood at 0.

        Not those that have only got another resource: in that one a counter begins with its first
        point, since what it stood at before is not that container's.
        """
        readings = snapshot.readings
        new = [
            entry
            for entry in shape.counters
            if entry.state.started_ns is None and readings[entry.at].window_start is not None
        ]
        if not new:
            return
        known = set() if former is None else {_named(series) for series in former.layout.series}
        for entry in new:
            start, track = readings[entry.at].window_start, entry.state
            if start is None or _named(snapshot.layout.series[entry.at]) in known:
                continue
            if self._delta:
                if former is None:  # nobody knows what of it was told before
                    continue
                track.value = 0
            track.started_ns, track.start = start.mono_ns, self._timeline(start.mono_ns)

    def _series_state(self, cell: SeriesTemplate) -> SeriesState:
        track = self._tracks.get(cell.key)
        if track is None:
            track = self._tracks[cell.key] = SeriesState(cell)
        return track

    def _restart(self, starts: tuple[Instant | None, ...]) -> None:
        """Follow counters that were set back."""
        self._starts = starts
        if self._shape is None:
            return
        for entry in self._shape.counters:
            start = starts[entry.at] if entry.at < len(starts) else None
            track = entry.state
            if start is None or track.started_ns is None or start.mono_ns <= track.started_ns:
                continue
            track.started_ns, track.value = start.mono_ns, 0
            if not self._delta:  # an increment counts from the point before
                track.start = self._order(start.mono_ns)
            self._started += 1

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
            made = self._pack(selection, snapshot, times, values)
        except (struct.error, OverflowError):  # a value is not what it was the last time
            self.not_finite += selection.choose_template(values, self._blocks)
            made = self._pack(selection, snapshot, times, values)
        if self._delta:
            self._store_values(selection, raw, times)
        return made

    def _selection(self, snapshot: Snapshot) -> Selection:
        found = self._selections.pop(snapshot.fresh, None)
        if found is None:
            if len(self._selections) >= _SELECTIONS:
                self._selections.pop(next(iter(self._selections))).record_times()
            if self._shape is None:
                raise RuntimeError("there is no layout to select from")
            found = Selection(self._shape, snapshot.fresh)
        self._selections[snapshot.fresh] = found
        return found

    def _pack(
        self,
        selection: Selection,
        snapshot: Snapshot,
        times: Sequence[int],
        values: Sequence[Value | None],
    ) -> Sequence[tuple[int, bytes]]:
        frame = selection.template
        if frame is None:
            return ()
        entries: Sequence[SeriesEntry] = selection.entries
        if frame.pick is not None:
            times = [times[at] for at in frame.pick]
            values = [values[at] for at in frame.pick]
            entries = [entries[at] for at in frame.pick]
        if frame.is_unused:
            for entry, time in zip(entries, times, strict=True):
                track = entry.state
                if track.started_ns is None:
                    at = snapshot.at if entry.at_snapshot else snapshot.readings[entry.at].at
                    track.started_ns, track.start = at.mono_ns, time
        return frame.pack(times, values, self._started)

    @staticmethod
    def _increments(selection: Selection, raw: Sequence[Value | None]) -> list[Value | None]:
        """Return values with what came on top in place of counters; 0 at first."""
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
        """Note what the next increments are counted from."""
        frame = selection.template
        if frame is None:
            return
        for at in selection.counters:
            if at not in frame.omitted:
                track = selection.entries[at].state
                track.value, track.start = raw[at], times[at]
        self._started += 1


def _carry_over_values(former: SeriesLayout, shape: SeriesLayout) -> None:
    """Let increments count from the last point, whatever series had come to be called by then."""
    for series, entry in shape.made.items():
        was = former.made.get(series)
        if entry is None or was is None or entry.state.started_ns is not None:
            continue
        if entry.state.template.metric.instrument.kind == "counter":
            now, then = entry.state, was.state
            now.started_ns, now.start, now.value = then.started_ns, then.start, then.value


def _named(series: Series) -> tuple[str, str, Attrs]:
    return (series.attribution.device.uuid, series.field, series.attrs)
