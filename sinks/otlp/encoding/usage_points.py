"""Points of who used how much: an account's series, from one look at the devices to the next.

They are no readings: they come when an account has moved on, whatever is fresh. What a container
had stands in its resource, what belongs to none and what is the whole device's in the node's.

Each look tells of every container that is there, changed or not. Of one that has ended it tells
what has changed since the last point: its final values are sent once, however long the account
keeps them, so that what is sent grows with the containers that are there, not with those that were.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from pipeline.exposition.usage_metrics import CONTAINER, CONTAINER_XIDS, DEVICE, Quantity, accounts
from pipeline.model import (
    Attribution,
    ContainerUsage,
    DeviceUsage,
    Holder,
    Instant,
    PartialRef,
    PodInfo,
    Snapshot,
    Usage,
    Value,
)
from sinks.otlp.encoding.request_frames import Blocks, RequestTemplate
from sinks.otlp.encoding.series_cache import DeviceSeries, SeriesCache
from sinks.otlp.encoding.series_state import SeriesState, ordered
from sinks.otlp.encoding.steady_time import PointOrder, WallTimeline
from sinks.otlp.encoding.usage_names import instrument
from sinks.otlp.encoding.wire_format import MetricTemplate, ResourceTemplate, SeriesTemplate

_INT64: Final = range(-(1 << 63), 1 << 63)
_Family: TypeAlias = Quantity[ContainerUsage] | Quantity[DeviceUsage]

_VARIANTS: Final = 4
"""Frames that are kept: of all devices, and of those that are looked at apart."""


class _Row(NamedTuple):
    """A point to be: its value in whole units of the account."""

    track: SeriesState
    at: int
    value: int
    divisor: int


@dataclass(slots=True)
class _ContainerSeries:
    """Series of a container on a device, or of the device itself.

    Attributes:
        place: the resource.
        pod: what was known of the pod when that was made.
        container_id: of a container that holds a device or did: one that has ended stays in the
            resource that it had.
        tracks: the series by quantity, None for those that have none.
        errors: those of XID errors, by code.
    """

    place: ResourceTemplate
    pod: PodInfo | None = None
    container_id: str = ""
    tracks: list[SeriesState | None] = field(default_factory=list)
    errors: dict[str, SeriesState] = field(default_factory=dict)


@dataclass(slots=True)
class _DeviceState:
    """A device's series.

    Attributes:
        usage: the account that was told last.
        attribute_bytes: the attributes that name the device, serialised.
        until: what began after this was never told before; None where nobody knows what was.
        series: by container; None for the device itself.
    """

    usage: DeviceUsage
    attribute_bytes: bytes
    until: int | None
    series: dict[PartialRef | None, _ContainerSeries] = field(default_factory=dict)

    @property
    def tracks(self) -> Iterator[SeriesState]:
        """All series that there are."""
        for whose in self.series.values():
            yield from (track for track in whose.tracks if track is not None)
            yield from whose.errors.values()


class UsagePoints:
    """Makes points of accounts that are others than the last ones.

    Attributes:
        duplicates: values that were left out because another has their name and attributes.

    Args:
        cache: knows resources and devices.
        blocks: lays out requests.
        timeline: tells wall times.
        order: the same, for points.
        delta: whether counters are sent as increments.
        previous: those whose place these take; None for the first.
    """

    def __init__(
        self,
        cache: SeriesCache,
        blocks: Blocks,
        timeline: WallTimeline,
        order: PointOrder,
        *,
        delta: bool,
        previous: "UsagePoints | None" = None,
    ) -> None:
        self.duplicates = 0
        self._cache = cache
        self._blocks = blocks
        self._timeline = timeline
        self._order = order
        self._delta = delta
        page = not cache.semconv
        self._of_container = [(f, cache.metric(instrument(f, page=page))) for f in CONTAINER]
        self._of_errors = cache.metric(instrument(CONTAINER_XIDS, page=page))
        self._of_device = [(f, cache.metric(instrument(f, page=page))) for f in DEVICE]
        self._usage: Usage | None = None
        self._until: int | None = None
        self._devices: dict[str, _DeviceState] = {}
        self._rows: list[_Row] = []
        self._frames: dict[tuple[tuple[SeriesState, ...], frozenset[int]], RequestTemplate] = {}
        self._started = 0
        if previous is None:
            return
        self._usage, self._until, self._devices = previous.handover()
        for told in self._devices.values():
            for subject, whose in told.series.items():
                if subject is not None:  # the node's resource is looked up each time
                    named = replace(subject, container_id=whose.container_id)
                    whose.place = cache.container(named, whose.pod)

    def handover(self) -> tuple[Usage | None, int | None, dict[str, _DeviceState]]:
        """Return what others need that go on: the last account, its moment, and all series."""
        return self._usage, self._until, self._devices

    def take_usage(self, snapshot: Snapshot) -> Sequence[SeriesState]:
        """Take over a snapshot's account; return the series that have ended with it."""
        self._rows = []
        usage = snapshot.usage
        if usage is self._usage:
            if usage is None:
                self._until = snapshot.at.mono_ns
            return ()
        self._usage = usage
        former, self._devices = self._devices, {}
        holders = {
            replace(holder.subject, container_id=""): holder
            for attribution in snapshot.layout.attributions.values()
            for holder in attribution.holders
        }
        ended: list[SeriesState] = []
        for attribution, used, told in accounts(snapshot):
            before = former.pop(used.device, None)
            if before is not None and before.usage is used:
                self._devices[used.device] = before
                continue
            now = self._update_device(attribution, used, told, before, holders)
            self._devices[used.device] = now
            if before is not None:
                ended += _ended_series(before, now)
        for before in former.values():
            ended += before.tracks
        looks = [snapshot.at] if usage is None else [used.at for used in usage.devices.values()]
        self._until = max((at.mono_ns for at in looks), default=snapshot.at.mono_ns)
        return ended

    def resource_of(self, device: str, subject: PartialRef) -> ResourceTemplate | None:
        """Return the resource of a container that the account last taken over tells of.

        Args:
            device: uuid of one that it has or had.
            subject: the container, without a container id.
        """
        told = self._devices.get(device)
        whose = None if told is None else told.series.get(subject)
        return None if whose is None else whose.place

    def points(self) -> Sequence[tuple[int, bytes]]:
        """Return requests with what the account last taken over has to say."""
        if not self._rows:
            return ()
        times: dict[int, int] = {}
        for row in self._rows:
            if row.at not in times:
                times[row.at] = self._order.after_all(row.at)
        by_track = {row.track: row for row in self._rows}
        tracks = tuple(ordered(by_track))
        rows = [by_track[track] for track in tracks]
        moments = [times[row.at] for row in rows]
        values = [self._value(row, time) for row, time in zip(rows, moments, strict=True)]
        odd = frozenset(
            at
            for at, value in enumerate(values)
            if isinstance(value, float) and tracks[at].template.metric.instrument.whole
        )
        frame = self._frame(tracks, odd)
        made = frame.pack(moments, values, self._started)
        frame.record_times()
        self._started += self._delta
        for row, time in zip(rows, moments, strict=True):
            row.track.value = row.value
            if self._delta and row.track.template.metric.instrument.kind == "counter":
                row.track.start = time
        return made

    def _update_device(
        self,
        attribution: Attribution,
        used: DeviceUsage,
        told: Sequence[Quantity[DeviceUsage]],
        before: _DeviceState | None,
        holders: Mapping[PartialRef, Holder],
    ) -> _DeviceState:
        """Return a device's series after a look at it, and note its points."""
        known = self._cache.device_series(attribution)
        back = self._cache.own_attributes(known)
        now = _DeviceState(
            used, back, before.usage.at.mono_ns if before is not None else self._until
        )
        former = before.series if before is not None else {}
        # Else it is only known now that somebody came or went: no figure is a newer one for that.
        looked = before is None or before.usage.at != used.at
        places: set[ResourceTemplate] = set()
        for one in used.containers:
            was = former.get(one.subject)
            whose = now.series[one.subject] = self._container_series(
                one, was, holders.get(one.subject)
            )
            values = [family.value(one) for family, _ in self._of_container]
            if whose.place in places:
                self.duplicates += len(values) - values.count(None) + len(one.xids)
                continue
            places.add(whose.place)
            anew = looked and one.ended is None
            told_of = zip(self._of_container, values, strict=True)
            self._add(now, whose, was, told_of, one.start, anew=anew)
            self._add_errors(now, whose, was, one, known, anew=anew)
        whole = now.series[None] = _ContainerSeries(self._cache.on_node)
        values = [family.value(used) if family in told else None for family, _ in self._of_device]
        of_device = zip(self._of_device, values, strict=True)
        self._add(now, whole, former.get(None), of_device, used.start, anew=looked)
        return now

    def _container_series(
        self, one: ContainerUsage, was: _ContainerSeries | None, holder: Holder | None
    ) -> _ContainerSeries:
        """Return where a container's points stand: with the readings of a device that it holds."""
        pod = holder.pod if holder is not None else one.pod
        container_id = was.container_id if was is not None else ""
        if holder is not None:
            container_id = holder.subject.container_id
        if was is not None and was.container_id == container_id and was.pod == pod:
            return _ContainerSeries(was.place, pod, container_id)
        subject = replace(one.subject, container_id=container_id)
        return _ContainerSeries(self._cache.container(subject, pod), pod, container_id)

    def _add(
        self,
        now: _DeviceState,
        target: _ContainerSeries,
        was: _ContainerSeries | None,
        values: Iterable[tuple[tuple[_Family, MetricTemplate], int | None]],
        start: Instant,
        *,
        anew: bool,
    ) -> None:
        """Note the points of a container or a device: of each quantity, if it is known.

        Args:
            now: the device's series.
            target: whose points they are.
            was: the same after the look before.
            values: by quantity; None for those that aren't known.
            start: since when there is an account.
            anew: whether those count as news that haven't changed.
        """
        former = was.tracks if was is not None else []
        at = now.usage.at.mono_ns
        for found, ((family, column), value) in zip_longest(former, values):
            if value is None:
                target.tracks.append(None)
                continue
            track = self._track(found, target.place, column, now.attribute_bytes)
            target.tracks.append(track)
            if column.instrument.kind == "counter":
                self._begin(track, start, value, now.until)
            if anew or _is_news(track, value):
                self._rows.append(_Row(track, at, value, family.divisor))

    def _add_errors(
        self,
        now: _DeviceState,
        target: _ContainerSeries,
        was: _ContainerSeries | None,
        one: ContainerUsage,
        device_series: DeviceSeries,
        *,
        anew: bool,
    ) -> None:
        """Note the points of a container's XID errors, of each code that has come up."""
        former = was.errors if was is not None else {}
        for code, count in CONTAINER_XIDS.values(one):
            found = former.get(code)
            back = self._cache.own_attributes(device_series, (self._cache.xid_attribute(code),))
            track = self._track(found, target.place, self._of_errors, back)
            target.errors[code] = track
            if found is None and was is not None and now.until is not None and self._delta:
                # There was none of that code at the last look.
                track.started_ns = one.start.mono_ns
                track.value, track.start = 0, self._timeline(now.until)
                self._started += 1
            self._begin(track, one.start, count, now.until)
            if anew or _is_news(track, count):
                self._rows.append(_Row(track, now.usage.at.mono_ns, count, 1))

    @staticmethod
    def _track(
        found: SeriesState | None, place: ResourceTemplate, column: MetricTemplate, back: bytes
    ) -> SeriesState:
        if (
            found is not None
            and found.template.resource is place
            and found.template.attribute_bytes == back
        ):
            return found
        track = SeriesState(SeriesTemplate(place, column, back))
        if found is not None and column.instrument.kind == "counter":
            # The container is the same one, whatever its resource has come to be called.
            track.started_ns, track.start, track.value = found.started_ns, found.start, found.value
        return track

    def _begin(self, track: SeriesState, start: Instant, value: int, until: int | None) -> None:
        """Let a counter begin with its account.

        Args:
            track: the series.
            start: since when there is an account.
            value: what it comes to now.
            until: what began after this was never told before; None where nobody knows what was.
        """
        if track.started_ns == start.mono_ns:
            return
        anew, track.started_ns = track.started_ns is not None, start.mono_ns
        self._started += 1
        if not self._delta:
            track.start = self._timeline.start(start)
        elif anew:  # an increment counts from the point before
            track.value = 0
        elif until is not None and start.mono_ns >= until:
            track.value, track.start = 0, self._timeline.start(start)
        else:
            track.value, track.start = value, -1

    def _value(self, row: _Row, time: int) -> Value:
        """Return a point's value in the unit of its metric, and let its series begin."""
        track = row.track
        metric = track.template.metric.instrument
        value = row.value
        if metric.kind != "counter":
            if track.started_ns is None:
                track.started_ns, track.start = row.at, time
                self._started += 1
        elif self._delta:
            if track.start < 0:
                track.start = time
            value -= int(track.value or 0)
        track.start = min(track.start, time)
        if row.divisor != 1:
            return value / row.divisor
        return value if value in _INT64 else float(value)

    def _frame(self, tracks: tuple[SeriesState, ...], odd: frozenset[int]) -> RequestTemplate:
        frame = self._frames.pop((tracks, odd), None)
        if frame is None:
            while len(self._frames) >= _VARIANTS:
                self._frames.pop(next(iter(self._frames)))
            frame = RequestTemplate(tracks, frozenset(), odd, self._blocks)
        self._frames[tracks, odd] = frame
        return frame


def _is_news(track: SeriesState, value: int) -> bool:
    return track.last is None or track.value != value


def _ended_series(before: _DeviceState, now: _DeviceState) -> Iterable[SeriesState]:
    """Return series that have ended, and don't go on as another container's of the same name."""
    alive = set(now.tracks)
    gone = [track for track in before.tracks if track not in alive]
    keys = {track.template.key for track in alive} if gone else set()
    return [track for track in gone if track.template.key not in keys]
