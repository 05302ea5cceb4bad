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
from functools import lru_cache, partial
from typing import Final, NamedTuple

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
from sinks.otlp.encoding.attribute_sets import INT64
from sinks.otlp.encoding.metric_names import usage_instrument
from sinks.otlp.encoding.request_frames import RequestTemplate, ordered
from sinks.otlp.encoding.series_cache import DeviceSeries, SeriesCache
from sinks.otlp.encoding.steady_time import PointOrder
from sinks.otlp.encoding.wire_format import (
    MetricTemplate,
    ResourceTemplate,
    SeriesState,
    SeriesTemplate,
)

_MAX_TEMPLATES: Final = 4
"""Maximum number of templates: for all devices, and for devices that are sampled separately."""


class _Amount(NamedTuple):
    """A known value of an account, in its integer units.

    Attributes:
        key: identifies its series among those of the container or device: the name of the metric,
            or the code of XID errors.
        metric: the metric.
        attribute_bytes: the attributes of its points, serialised.
        value: the value.
        divisor: the value divided by this is in the unit of the metric.
    """

    key: str
    metric: MetricTemplate
    attribute_bytes: bytes
    value: int
    divisor: int = 1


@dataclass(slots=True)
class _AccountSeries:
    """The series of a container on a device, or of the device itself.

    Attributes:
        resource: the resource.
        pod: the pod's metadata when the resource was made.
        container_id: id of the container, if it holds or held a device; else empty. A container
            that has ended keeps its resource.
        states: the series of known values, see `_Amount.key`.
    """

    resource: ResourceTemplate
    pod: PodInfo | None = None
    container_id: str = ""
    states: dict[str, SeriesState] = field(default_factory=dict)


@dataclass(slots=True)
class _DeviceState:
    """The series of a device.

    Attributes:
        usage: the account that was sent last.
        reported_until: totals that started after this time were not sent before; None if it is
            unknown what was sent.
        series: the series by container; the key None is for the device itself.
    """

    usage: DeviceUsage
    reported_until: int | None
    series: dict[PartialRef | None, _AccountSeries] = field(default_factory=dict)

    @property
    def states(self) -> Iterator[SeriesState]:
        """All series of the device and its containers."""
        for series in self.series.values():
            yield from series.states.values()


class UsagePoints:
    """Makes points of usage accounts that have changed.

    Attributes:
        duplicates: number of values left out because another has the same name and attributes.
        last_usage: the usage that was sent last.
        reported_until: time of the newest sample in this usage.
        devices: all series.

    Args:
        cache: provides resources and device attributes.
        order: assigns times to points.
        previous: the object to replace; None for the first.
    """

    def __init__(
        self,
        cache: SeriesCache,
        order: PointOrder,
        previous: "UsagePoints | None" = None,
    ) -> None:
        self.duplicates = 0
        self._cache = cache
        self._order = order
        self._timeline = order.timeline
        self._delta = cache.wire.delta
        page = not cache.semconv
        self._of_container = [(f, cache.metric(usage_instrument(f, page=page))) for f in CONTAINER]
        self._of_errors = cache.metric(usage_instrument(CONTAINER_XIDS, page=page))
        self._of_device = [(f, cache.metric(usage_instrument(f, page=page))) for f in DEVICE]
        self.last_usage: Usage | None = None
        self.reported_until: int | None = None
        self.devices: dict[str, _DeviceState] = {}
        self._rows: dict[SeriesState, tuple[int, _Amount]] = {}  # with the time of each
        self._template = lru_cache(_MAX_TEMPLATES)(partial(RequestTemplate, cache.wire))
        if previous is None:
            return
        self.last_usage, self.reported_until = previous.last_usage, previous.reported_until
        self.devices = previous.devices
        for device_state in self.devices.values():
            for subject, series in device_state.series.items():
                if subject is not None:  # the node's resource is looked up each time
                    named = replace(subject, container_id=series.container_id)
                    series.resource = cache.container(named, series.pod)

    def take_usage(self, snapshot: Snapshot) -> Sequence[SeriesState]:
        """Use a snapshot's usage for the next points; return the series that have ended."""
        self._rows = {}
        usage = snapshot.usage
        if usage is self.last_usage:
            if usage is None:
                self.reported_until = snapshot.at.mono_ns
            return ()
        self.last_usage = usage
        previous_series, self.devices = self.devices, {}
        holders = {
            replace(holder.subject, container_id=""): holder
            for attribution in snapshot.layout.attributions.values()
            for holder in attribution.holders
        }
        ended: list[SeriesState] = []
        for attribution, used, families in accounts(snapshot):
            before = previous_series.pop(used.device, None)
            if before is not None and before.usage is used:
                self.devices[used.device] = before
                continue
            now = self._update_device(attribution, used, families, before, holders)
            self.devices[used.device] = now
            if before is not None:
                ended += _ended_series(before, now)
        for before in previous_series.values():
            ended += before.states
        samples = () if usage is None else usage.devices.values()
        self.reported_until = max((one.at.mono_ns for one in samples), default=snapshot.at.mono_ns)
        return ended

    def resource_of(self, device: str, subject: PartialRef) -> ResourceTemplate | None:
        """Return the resource of a container in the current usage; None if it is not in it.

        Args:
            device: UUID of a device that the container holds, held or uses.
            subject: the container, without a container id.
        """
        device_state = self.devices.get(device)
        series = None if device_state is None else device_state.series.get(subject)
        return None if series is None else series.resource

    def points(self) -> Sequence[tuple[int, bytes]]:
        """Return requests with the points of the current usage."""
        if not self._rows:
            return ()
        times: dict[int, int] = {}
        for at, _ in self._rows.values():
            if at not in times:
                times[at] = self._order.after_all(at)
        states = tuple(ordered(self._rows))
        moments = [times[self._rows[state][0]] for state in states]
        values = list(map(self._value, states, moments))
        non_integer = frozenset(
            at
            for at, (state, value) in enumerate(zip(states, values, strict=True))
            if isinstance(value, float) and state.template.metric.instrument.whole
        )
        requests = self._template(states, non_integer).pack(moments, values)
        for state, time in zip(states, moments, strict=True):
            state.value = self._rows[state][1].value
            if self._delta and state.is_counter:
                state.start = time
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
        attribute_bytes = self._cache.attribute_bytes(device_series)
        current = _DeviceState(
            used, before.usage.at.mono_ns if before is not None else self.reported_until
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
            amounts = list(self._container_amounts(one, device_series, attribute_bytes))
            if series.resource in resources:
                self.duplicates += len(amounts)
                continue
            resources.add(series.resource)
            resend = is_new_sample and one.ended is None
            self._add(current, series, previous, amounts, one.start, resend=resend)
        whole = current.series[None] = _AccountSeries(self._cache.on_node)
        amounts = [
            _Amount(family.metric, metric, attribute_bytes, value, family.divisor)
            for family, metric in self._of_device
            if family in families and (value := family.value(used)) is not None
        ]
        previous = previous_series.get(None)
        self._add(current, whole, previous, amounts, used.start, resend=is_new_sample)
        return current

    def _container_series(
        self, one: ContainerUsage, previous: _AccountSeries | None, holder: Holder | None
    ) -> _AccountSeries:
        """Return a container's series, in the resource of the readings of a device it holds."""
        pod = holder.pod if holder is not None else one.pod
        container_id = previous.container_id if previous is not None else ""
        if holder is not None:
            container_id = holder.subject.container_id
        if previous is not None and previous.container_id == container_id and previous.pod == pod:
            return _AccountSeries(previous.resource, pod, container_id)
        subject = replace(one.subject, container_id=container_id)
        return _AccountSeries(self._cache.container(subject, pod), pod, container_id)

    def _container_amounts(
        self, one: ContainerUsage, device_series: DeviceSeries, attribute_bytes: bytes
    ) -> Iterator[_Amount]:
        for family, metric in self._of_container:
            if (value := family.value(one)) is not None:
                yield _Amount(family.metric, metric, attribute_bytes, value, family.divisor)
        for code, count in one.xids:
            attrs = (self._cache.xid_attribute(str(code)),)
            with_code = self._cache.attribute_bytes(device_series, attrs)
            yield _Amount(str(code), self._of_errors, with_code, count)

    def _add(
        self,
        current: _DeviceState,
        target: _AccountSeries,
        previous: _AccountSeries | None,
        amounts: Iterable[_Amount],
        start: Instant,
        *,
        resend: bool,
    ) -> None:
        """Collect the points of a container or a device, one for each known value.

        Args:
            current: the device's series.
            target: the series to which the points belong.
            previous: the same series in the previous account.
            amounts: the known values.
            start: start of the account.
            resend: whether to send unchanged values too.
        """
        until = current.reported_until
        for amount in amounts:
            found = previous.states.get(amount.key) if previous is not None else None
            state = target.states[amount.key] = self._state(found, target.resource, amount)
            if (
                amount.metric is self._of_errors
                and found is None
                and previous is not None
                and until is not None
                and self._delta
            ):
                # There was no error with this code at the last sample.
                state.started_ns = start.mono_ns
                state.value, state.start = 0, self._timeline(until)
            if amount.metric.instrument.kind == "counter":
                self._begin(state, start, amount.value, until)
            if resend or not state.sent or state.value != amount.value:
                self._rows[state] = current.usage.at.mono_ns, amount

    @staticmethod
    def _state(
        found: SeriesState | None, resource: ResourceTemplate, amount: _Amount
    ) -> SeriesState:
        if (
            found is not None
            and found.template.resource is resource
            and found.template.attribute_bytes == amount.attribute_bytes
        ):
            return found
        state = SeriesState(SeriesTemplate(resource, amount.metric, amount.attribute_bytes))
        if found is not None and amount.metric.instrument.kind == "counter":
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
        if not self._delta:
            state.start = self._timeline.start(start)
        elif restarted:  # an increment starts at the previous point
            state.value = 0
        elif reported_until is not None and start.mono_ns >= reported_until:
            state.value, state.start = 0, self._timeline.start(start)
        else:
            state.value, state.start = value, -1

    def _value(self, state: SeriesState, time: int) -> Value:
        """Return a point's value in the unit of its metric, and set the start of its series."""
        at, amount = self._rows[state]
        value = amount.value
        if not state.is_counter:
            if state.started_ns is None:
                state.started_ns, state.start = at, time
        elif self._delta:
            if state.start < 0:
                state.start = time
            value -= int(state.value or 0)
        state.start = min(state.start, time)
        if amount.divisor != 1:
            return value / amount.divisor
        return value if value in INT64 else float(value)


def _ended_series(before: _DeviceState, now: _DeviceState) -> Iterable[SeriesState]:
    """Return series that have ended and are not continued by one with the same key."""
    alive = set(now.states)
    gone = [state for state in before.states if state not in alive]
    keys = {state.template.key for state in alive} if gone else set()
    return [state for state in gone if state.template.key not in keys]
