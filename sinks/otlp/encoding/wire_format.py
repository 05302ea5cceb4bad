"""The bytes of a request: what is the same each time, with holes for what isn't.

The wire format stays the messages' business: which bytes stand before a nested message or a number
is read off messages that they have serialised. Only lengths are worked out here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Final

from pipeline.base.version import VERSION
from sinks.otlp.encoding.attributes import Pairs, key_values
from sinks.otlp.encoding.semconv import SCHEMA_URL, Instrument
from sinks.otlp.messages import (
    AggregationTemporality,
    DataPointFlags,
    ExportMetricsServiceRequest,
    Gauge,
    InstrumentationScope,
    KeyValue,
    Metric,
    NumberDataPoint,
    Resource,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

FIXED: Final = Struct("<Q")
_PLACE: Final = attrgetter("resource")
_COLUMN: Final = attrgetter("metric")
_LOOSE: Final = 16
"""Bytes for the tags and lengths around a message, at most."""


def _holes() -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return what stands before a start, a time and a value of either type, and the flag."""
    marks = [bytes([0xFF - at] * 8) for at in range(3)]
    start, time, value = (FIXED.unpack(mark)[0] for mark in marks)
    point = NumberDataPoint(
        attributes=[KeyValue(key="k")],
        start_time_unix_nano=start,
        time_unix_nano=time,
        as_int=value - (1 << 64),
    )
    before, rest = point.SerializeToString().split(marks[0])
    between, rest = rest.split(marks[1])
    as_int, after = rest.split(marks[2])
    point.as_double = 0.0
    as_double = point.SerializeToString().split(marks[1])[1].removesuffix(bytes(8) + after)
    flag = NumberDataPoint(
        flags=DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    ).SerializeToString()
    if after != NumberDataPoint(attributes=[KeyValue(key="k")]).SerializeToString():
        raise RuntimeError("the messages put attributes elsewhere than behind the value")
    return before, between, as_double, as_int, flag


def attributes(pairs: Pairs) -> bytes:
    """Return a point's attributes, serialised: they stand behind its value."""
    return NumberDataPoint(attributes=key_values(pairs)).SerializeToString()


def _tag(empty: bytes) -> bytes:
    """Return what stands before the length of a nested message, from one that is empty."""
    return empty[:-1]


START, TIME, AS_DOUBLE, AS_INT, NO_VALUE = _holes()
_RESOURCES: Final = _tag(
    ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics()]).SerializeToString()
)
_SCOPES: Final = _tag(ResourceMetrics(scope_metrics=[ScopeMetrics()]).SerializeToString())
_METRICS: Final = _tag(ScopeMetrics(metrics=[Metric()]).SerializeToString())
_GAUGE: Final = _tag(Metric(gauge=Gauge()).SerializeToString())
_SUM: Final = _tag(Metric(sum=Sum()).SerializeToString())
_POINTS: Final = _tag(Gauge(data_points=[NumberDataPoint()]).SerializeToString())


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ResourceTemplate:
    """A resource, serialised.

    Attributes:
        front: `ResourceMetrics` up to what it nests.
    """

    front: bytes


@dataclass(frozen=True, slots=True, eq=False)
class MetricTemplate:
    """A metric, serialised.

    Attributes:
        instrument: the metric.
        rank: its place among a resource's metrics.
        front: `Metric` up to its data, with the tag of those.
        tail: what stands behind the points in its data.
    """

    instrument: Instrument
    rank: int
    front: bytes
    tail: bytes


@dataclass(frozen=True, slots=True, eq=False)
class SeriesTemplate:
    """What is the same in all points of a series.

    Attributes:
        resource: the resource.
        metric: the metric.
        attribute_bytes: the attributes, serialised.
    """

    resource: ResourceTemplate
    metric: MetricTemplate
    attribute_bytes: bytes

    @property
    def key(self) -> tuple[ResourceTemplate, str, bytes]:
        """What no two series share."""
        return (self.resource, self.metric.instrument.name, self.attribute_bytes)


class Wire:
    """Puts points into requests.

    Args:
        schema: whether the names are those of the conventions.
        delta: whether counters are sent as increments.
        most_bytes: how long a request gets; one that holds a single point may be longer.
    """

    def __init__(self, *, schema: bool, delta: bool, most_bytes: int) -> None:
        url = SCHEMA_URL if schema else ""
        self._delta = delta
        self._most = most_bytes
        self._scope = ScopeMetrics(
            scope=InstrumentationScope(name="podgpu", version=VERSION)
        ).SerializeToString()
        self._scope_back = ScopeMetrics(schema_url=url).SerializeToString()
        self._resource_back = ResourceMetrics(schema_url=url).SerializeToString()
        self._back = self._scope_back + self._resource_back

    @staticmethod
    def resource_bytes(pairs: Pairs) -> bytes:
        """Return the front of a resource with these attributes."""
        return ResourceMetrics(resource=Resource(attributes=key_values(pairs))).SerializeToString()

    def metric(self, instrument: Instrument) -> Metric:
        """Return a metric without points."""
        metric = Metric(
            name=instrument.name, description=instrument.description, unit=instrument.unit
        )
        if instrument.kind != "gauge":
            counter = instrument.kind == "counter"
            metric.sum.is_monotonic = counter
            metric.sum.aggregation_temporality = (
                AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
                if self._delta and counter
                else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            )
        return metric

    def column(self, instrument: Instrument, rank: int) -> MetricTemplate:
        """Return a metric, serialised."""
        metric = self.metric(instrument)
        tail = b"" if instrument.kind == "gauge" else metric.sum.SerializeToString()
        metric.ClearField("sum")
        tag = _GAUGE if instrument.kind == "gauge" else _SUM
        return MetricTemplate(instrument, rank, metric.SerializeToString() + tag, tail)

    def request(self, front: bytes, metrics: Iterable[Metric]) -> bytes:
        """Return a request of one resource in which all is there already.

        Args:
            front: from `place`.
            metrics: with their points.
        """
        scope = ScopeMetrics.FromString(self._scope + self._scope_back)
        scope.metrics.extend(metrics)
        found = ResourceMetrics.FromString(front + self._resource_back)
        found.scope_metrics.append(scope)
        return ExportMetricsServiceRequest(resource_metrics=[found]).SerializeToString()

    def blocks(
        self, cells: Sequence[SeriesTemplate], holes: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield where blocks begin and end: points of one resource, no more than a request holds.

        Args:
            cells: of the points, those of one resource together.
            holes: for each, how many bytes of the point stand before its attributes, or behind
                them.
        """
        end = 0
        for place, group in groupby(cells, _PLACE):
            begin, around = end, len(place.front) + len(self._back) + 4 * _LOOSE
            size, column = around, None
            for cell in group:
                more = len(cell.attribute_bytes) + holes[end] + _LOOSE
                if cell.metric is not column:
                    column = cell.metric
                    more += len(column.front) + len(column.tail) + 2 * _LOOSE
                if size + more > self._most and end > begin:
                    yield begin, end
                    begin, size = end, around + len(column.front) + len(column.tail) + 2 * _LOOSE
                size += more
                end += 1
            yield begin, end

    def surrounding_bytes(
        self, cells: Sequence[SeriesTemplate], holes: Sequence[int]
    ) -> list[bytes]:
        """Return what stands around a block's points: before each of them, and behind the last.

        Args:
            cells: of the points, those of one metric together.
            holes: as in `blocks`.
        """
        metrics: list[tuple[bytes, bytes, list[bytes]]] = []
        inside = len(self._scope) + len(self._scope_back)
        at = 0
        for column, group in groupby(cells, _COLUMN):
            heads: list[bytes] = []
            data = len(column.tail)
            for cell in group:
                size = len(cell.attribute_bytes) + holes[at]
                head = _POINTS + varint(size)
                data += len(head) + size
                heads.append(head)
                at += 1
            front = column.front + varint(data)
            front = _METRICS + varint(len(front) + data) + front
            inside += len(front) + data
            metrics.append((front, column.tail, heads))
        place = cells[0].resource
        scope = _SCOPES + varint(inside)
        length = len(place.front) + len(scope) + inside + len(self._resource_back)
        pending = _RESOURCES + varint(length) + place.front + scope + self._scope
        before: list[bytes] = []
        for front, tail, heads in metrics:
            heads[0] = pending + front + heads[0]
            before += heads
            pending = tail
        before.append(pending + self._back)
        return before

    def requests(self, sizes: Iterable[int]) -> Iterator[int]:
        """Yield how many blocks go into each request, one at least.

        Args:
            sizes: of the blocks, in bytes.
        """
        count = filled = 0
        for size in sizes:
            if count and filled + size > self._most:
                yield count
                count = filled = 0
            count += 1
            filled += size
        if count:
            yield count


@lru_cache(maxsize=1 << 12)
def varint(number: int) -> bytes:
    """Return a length as it stands before a nested message."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
