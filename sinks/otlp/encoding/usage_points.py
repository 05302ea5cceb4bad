"""Encode usage accounts as points.

Usage is not a reading: points are made when an account changes, no matter which readings are fresh.
Usage of a container is in its resource. Unattributed usage and totals of a device are in the node's
resource.

Each usage sample sends the values of all running containers, changed or not. For a container that
has ended it sends only changed values, so its final values are sent once. Thus the amount of data
grows with the running containers, not with those that ended.
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

_MAX_TEMPLATES: Final = 4
"""Maximum number of templates: for all devices, and for devices that are sampled separately."""


class _Row(NamedTuple):
    """A point to send, with its value in integer units of the account."""

    state: SeriesState
    at: int
    value: int
    divisor: int


@dataclass(slots=True)
class _ContainerSeries:
    """The series of a container on a device, or of the device itself.

    Attributes:
        resource: the resource.
        pod: the pod's metadata when the resource was made.
        container_id: of a container that holds or held a device. A container that has ended keeps
            its resource.
        states: the series by metric; None for those without a value.
        errors: the series of XID errors, by code.
    """

    resource: ResourceTemplate
    pod: PodInfo | None = None
    container_id: str = ""
    states: list[SeriesState | None] = field(default_factory=list)
    errors: dict[str, SeriesState] = field(default_factory=dict)


@dataclass(slots=True)
class _DeviceState:
    """The series of a device.

    Attributes:
        usage: the account that was sent last.
        attribute_bytes: the device's attributes, serialised.
        reported_until: totals that started after this time were not sent before; None if it is
            unknown what was sent.
        series: by container; None for the device itself.
    """

    usage: DeviceUsage
    attribute_bytes: bytes
    reported_until: int | None
    series: dict[PartialRef | None, _ContainerSeries] = field(default_factory=dict)

    @property
    def states(self) -> Iterator[SeriesState]:
        """All series of the device and its containers."""
        for series in self.series.values():
            yield from (state for state in series.states if state is not None)
            yield from series.errors.values()


class UsagePoints:
    """Makes points of usage accounts that have changed.

    Attributes:
        duplicates: number of values left out because another has the same name and attributes.

    Args:
        cache: provides resources and device attributes.
        blocks: makes blocks of requests.
        timeline: maps monotonic to wall times.
        order: assigns times to points.
        delta: whether counters are sent as increments.
        previous: the object to replace; None for the first.
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
        self._reported_until: int | None = None
        self._devices: dict[str, _DeviceState] = {}
        self._rows: list[_Row] = []
        self._templates: dict[tuple[tuple[SeriesState, ...], frozenset[int]], RequestTemplate] = {}
        self._start_version = 0
        if previous is None:
            return
        self._usage, self._reported_until, self._devices = previous.handover()
        for device_state in self._devices.values():
            for subject, series in device_state.series.items():
                if subject is not None:  # the node's resource is looked up each time
                    named = replace(subject, container_id=series.container_id)
                    series.resource = cache.container(named, series.pod)

    def handover(self) -> tuple[Usage | None, int | None, dict[str, _DeviceState]]:
        """Return the state for a successor: last usage, its time, all series."""
        return self._usage, self._reported_until, self._devices

    def take_usage(self, snapshot: Snapshot) -> Sequence[SeriesState]:
        """Use a snapshot's usage for the next points; return the series that have ended with it."""
        self._rows = []
        usage = snapshot.usage
        if usage is self._usage:
            if usage is None:
                self._reported_until = snapshot.at.mono_ns
            return ()
        self._usage = usage
        previous_series, self._devices = self._devices, {}
        holders = {
            replace(holder.subject, container_id=""): holder
            for attribution in snapshot.layout.attributions.values()
            for holder in attribution.holders
        }
        ended: list[SeriesState] = []
        for attribution, used, families in accounts(snapshot):
            before = previous_series.pop(used.device, None)
            if before is not None and before.usage is used:
                self._devices[used.device] = before
                continue
            now = self._update_device(attribution, used, families, before, holders)
            self._devices[used.device] = now
            if before is not None:
                ended += _ended_series(before, now)
        for before in previous_series.values():
            ended += before.states
        sample_times = (
            [snapshot.at] if usage is None else [used.at for used in usage.devices.values()]
        )
        self._reported_until = max((at.mono_ns for at in sample_times), default=snapshot.at.mono_ns)
        return ended

    def resource_of(self, device: str, subject: PartialRef) -> ResourceTemplate | None:
        """Return the resource of a container in the current usage; None if it is not in it.

        Args:
            device: UUID of a device that the container holds, held or uses.
            subject: the container, without a container id.
        """
        device_state = self._devices.get(device)
        series = None if device_state is None else device_state.series.get(subject)
        return None if series is None else series.resource

    def points(self) -> Sequence[tuple[int, bytes]]:
        """Return requests with the points of the current usage."""
        if not self._rows:
            return ()
        times: dict[int, int] = {}
        for row in self._rows:
            if row.at not in times:
                times[row.at] = self._order.after_all(row.at)
        by_state = {row.state: row for row in self._rows}
        states = tuple(ordered(by_state))
        rows = [by_state[state] for state in states]
        moments = [times[row.at] for row in rows]
        values = [self._value(row, time) for row, time in zip(rows, moments, strict=True)]
        non_integer = frozenset(
            at
            for at, value in enumerate(values)
            if isinstance(value, float) and states[at].template.metric.instrument.whole
        )
        template = self._template(states, non_integer)
        requests = template.pack(moments, values, self._start_version)
        template.record_times()
        self._start_version += self._delta
        for row, time in zip(rows, moments, strict=True):
            row.state.value = row.value
            if self._delta and row.state.template.metric.instrument.kind == "counter":
                row.state.start = time
        return requests

    def _update_device(
        self,
        attribution: Attribution,
        used: DeviceUsage,
        families: Sequence[Quantity[DeviceUsage]],
        before: _DeviceState | None,
        holders: Mapping[PartialRef, Holder],
    ) -> _DeviceState:
        """Return a device's series for a new account, and collect its points."""
        device_series = self._cache.device_series(attribution)
        attribute_bytes = self._cache.own_attributes(device_series)
        current = _DeviceState(
            used,
            attribute_bytes,
            before.usage.at.mono_ns if before is not None else self._reported_until,
        )
        previous_series = before.series if before is not None else {}
        # Without a new sample, only holders have changed. No value is newer for that.
        is_new_sample = before is None or before.usage.at != used.at
        resources: set[ResourceTemplate] = set()
        for one in used.containers:
            previous = previous_series.get(one.subject)
            series = current.series[one.subject] = self._container_series(
                one, previous, holders.get(one.subject)
            )
            values = [family.value(one) for family, _ in self._of_container]
            if series.resource in resources:
                self.duplicates += len(values) - values.count(None) + len(one.xids)
                continue
            resources.add(series.resource)
            resend = is_new_sample and one.ended is None
            family_values = zip(self._of_container, values, strict=True)
            self._add(current, series, previous, family_values, one.start, resend=resend)
            self._add_errors(current, series, previous, one, device_series, resend=resend)
        whole = current.series[None] = _ContainerSeries(self._cache.on_node)
        values = [
            family.value(used) if family in families else None for family, _ in self._of_device
        ]
        of_device = zip(self._of_device, values, strict=True)
        self._add(
            current, whole, previous_series.get(None), of_device, used.start, resend=is_new_sample
        )
        return current

    def _container_series(
        self, one: ContainerUsage, previous: _ContainerSeries | None, holder: Holder | None
    ) -> _ContainerSeries:
        """Return a container's series, in the resource of the readings of a device it holds."""
        pod = holder.pod if holder is not None else one.pod
        container_id = previous.container_id if previous is not None else ""
        if holder is not None:
            container_id = holder.subject.container_id
        if previous is not None and previous.container_id == container_id and previous.pod == pod:
            return _ContainerSeries(previous.resource, pod, container_id)
        subject = replace(one.subject, container_id=container_id)
        return _ContainerSeries(self._cache.container(subject, pod), pod, container_id)

    def _add(
        self,
        current: _DeviceState,
        target: _ContainerSeries,
        previous: _ContainerSeries | None,
        values: Iterable[tuple[tuple[_Family, MetricTemplate], int | None]],
        start: Instant,
        *,
        resend: bool,
    ) -> None:
        """Collect the points of a container or a device, one for each known value.

        Args:
            current: the device's series.
            target: the series to which the points belong.
            previous: the same series in the previous account.
            values: by metric; None for unknown values.
            start: start of the account.
            resend: whether to send unchanged values too.
        """
        previous_series = previous.states if previous is not None else []
        at = current.usage.at.mono_ns
        for found, ((family, metric), value) in zip_longest(previous_series, values):
            if value is None:
                target.states.append(None)
                continue
            state = self._state(found, target.resource, metric, current.attribute_bytes)
            target.states.append(state)
            if metric.instrument.kind == "counter":
                self._begin(state, start, value, current.reported_until)
            if resend or _has_changed(state, value):
                self._rows.append(_Row(state, at, value, family.divisor))

    def _add_errors(
        self,
        current: _DeviceState,
        target: _ContainerSeries,
        previous: _ContainerSeries | None,
        one: ContainerUsage,
        device_series: DeviceSeries,
        *,
        resend: bool,
    ) -> None:
        """Collect the points of a container's XID errors, one for each code that occurred."""
        previous_series = previous.errors if previous is not None else {}
        for code, count in CONTAINER_XIDS.values(one):
            found = previous_series.get(code)
            attribute_bytes = self._cache.own_attributes(
                device_series, (self._cache.xid_attribute(code),)
            )
            state = self._state(found, target.resource, self._of_errors, attribute_bytes)
            target.errors[code] = state
            if (
                found is None
                and previous is not None
                and current.reported_until is not None
                and self._delta
            ):
                # There was no error with this code at the last sample.
                state.started_ns = one.start.mono_ns
                state.value, state.start = 0, self._timeline(current.reported_until)
                self._start_version += 1
            self._begin(state, one.start, count, current.reported_until)
            if resend or _has_changed(state, count):
                self._rows.append(_Row(state, current.usage.at.mono_ns, count, 1))

    @staticmethod
    def _state(
        found: SeriesState | None,
        resource: ResourceTemplate,
        metric: MetricTemplate,
        attribute_bytes: bytes,
    ) -> SeriesState:
        if (
            found is not None
            and found.template.resource is resource
            and found.template.attribute_bytes == attribute_bytes
        ):
            return found
        state = SeriesState(SeriesTemplate(resource, metric, attribute_bytes))
        if found is not None and metric.instrument.kind == "counter":
            # It is the same container, although its resource has changed.
            state.started_ns, state.start, state.value = found.started_ns, found.start, found.value
        return state

    def _begin(
        self, state: SeriesState, start: Instant, value: int, reported_until: int | None
    ) -> None:
        """Set the start of a counter to the start of its account.

        Args:
            state: the series.
            start: start of the account.
            value: the current total.
            reported_until: totals that started after this time were not sent before; None if it is
                unknown what was sent.
        """
        if state.started_ns == start.mono_ns:
            return
        restarted, state.started_ns = state.started_ns is not None, start.mono_ns
        self._start_version += 1
        if not self._delta:
            state.start = self._timeline.start(start)
        elif restarted:  # an increment starts at the previous point
            state.value = 0
        elif reported_until is not None and start.mono_ns >= reported_until:
            state.value, state.start = 0, self._timeline.start(start)
        else:
            state.value, state.start = value, -1

    def _value(self, row: _Row, time: int) -> Value:
        """Return a point's value in the unit of its metric, and set the start of its series."""
        state = row.state
        metric = state.template.metric.instrument
        value = row.value
        if metric.kind != "counter":
            if state.started_ns is None:
                state.started_ns, state.start = row.at, time
                self._start_version += 1
        elif self._delta:
            if state.start < 0:
                state.start = time
            value -= int(state.value or 0)
        state.start = min(state.start, time)
        if row.divisor != 1:
            return value / row.divisor
        return value if value in _INT64 else float(value)

    def _template(
        self, states: tuple[SeriesState, ...], non_integer: frozenset[int]
    ) -> RequestTemplate:
        template = self._templates.pop((states, non_integer), None)
        if template is None:
            while len(self._templates) >= _MAX_TEMPLATES:
                self._templates.pop(next(iter(self._templates)))
            template = RequestTemplate(states, frozenset(), non_integer, self._blocks)
        self._templates[states, non_integer] = template
        return template


def _has_changed(state: SeriesState, value: int) -> bool:
    return state.last is None or state.value != value


def _ended_series(before: _DeviceState, now: _DeviceState) -> Iterable[SeriesState]:
    """Return series that have ended and are not continued by one with the same key."""
    alive = set(now.states)
    gone = [state for state in before.states if state not in alive]
    keys = {state.template.key for state in alive} if gone else set()
    return [state for state in gone if state.template.key not in keys]
