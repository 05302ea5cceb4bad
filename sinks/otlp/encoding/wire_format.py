"""The bytes of a request: constant parts, with gaps for times and values.

Field numbers and wire types are not repeated here. The tags are taken from messages that the
protobuf library has serialised. Only lengths are computed.
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
_RESOURCE: Final = attrgetter("resource")
_METRIC: Final = attrgetter("metric")
_OVERHEAD: Final = 16
"""Maximum number of bytes for the tags and lengths around a message."""


def _point_tags() -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return the tags before a start, a time and a value of either type, and the flag."""
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
        raise RuntimeError("the protobuf library does not put attributes after the value")
    return before, between, as_double, as_int, flag


def attributes(pairs: Pairs) -> bytes:
    """Return a point's attributes, serialised: they follow its value."""
    return NumberDataPoint(attributes=key_values(pairs)).SerializeToString()


def _tag(empty: bytes) -> bytes:
    """Return the tag before the length of a nested message, from an empty one."""
    return empty[:-1]


START, TIME, AS_DOUBLE, AS_INT, NO_VALUE = _point_tags()
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
    """A serialised resource.

    Attributes:
        front: `ResourceMetrics` up to its nested messages.
    """

    front: bytes


@dataclass(frozen=True, slots=True, eq=False)
class MetricTemplate:
    """A serialised metric.

    Attributes:
        instrument: the metric.
        rank: its position among the metrics of a resource.
        front: `Metric` up to its data, with the tag of the data.
        tail: what follows the points in its data.
    """

    instrument: Instrument
    rank: int
    front: bytes
    tail: bytes


@dataclass(frozen=True, slots=True, eq=False)
class SeriesTemplate:
    """The constant part of all points of a series.

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
        """Identifies the series."""
        return (self.resource, self.metric.instrument.name, self.attribute_bytes)


class Wire:
    """Builds requests of points.

    Args:
        schema: whether the names are those of the semantic conventions.
        delta: whether counters are sent as increments.
        most_bytes: maximum size of a request; one with a single point may be larger.
    """

    def __init__(self, *, schema: bool, delta: bool, most_bytes: int) -> None:
        url = SCHEMA_URL if schema else ""
        self._delta = delta
        self._max_bytes = most_bytes
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

    def metric_template(self, instrument: Instrument, rank: int) -> MetricTemplate:
        """Return the template of a metric."""
        metric = self.metric(instrument)
        tail = b"" if instrument.kind == "gauge" else metric.sum.SerializeToString()
        metric.ClearField("sum")
        tag = _GAUGE if instrument.kind == "gauge" else _SUM
        return MetricTemplate(instrument, rank, metric.SerializeToString() + tag, tail)

    def request(self, front: bytes, metrics: Iterable[Metric]) -> bytes:
        """Return a request with one resource and complete metrics.

        Args:
            front: front of the resource, from `resource_bytes`.
            metrics: metrics with their points.
        """
        scope = ScopeMetrics.FromString(self._scope + self._scope_back)
        scope.metrics.extend(metrics)
        found = ResourceMetrics.FromString(front + self._resource_back)
        found.scope_metrics.append(scope)
        return ExportMetricsServiceRequest(resource_metrics=[found]).SerializeToString()

    def blocks(
        self, templates: Sequence[SeriesTemplate], value_sizes: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Yield start and end of blocks: points of one resource that fit into a request.

        Args:
            templates: of the points, grouped by resource.
            value_sizes: for each point, the number of bytes other than its attributes.
        """
        end = 0
        for resource, group in groupby(templates, _RESOURCE):
            begin, overhead = end, len(resource.front) + len(self._back) + 4 * _OVERHEAD
            size, metric = overhead, None
            for template in group:
                added = len(template.attribute_bytes) + value_sizes[end] + _OVERHEAD
                if template.metric is not metric:
                    metric = template.metric
                    added += len(metric.front) + len(metric.tail) + 2 * _OVERHEAD
                if size + added > self._max_bytes and end > begin:
                    yield begin, end
                    begin, size = (
                        end,
                        overhead + len(metric.front) + len(metric.tail) + 2 * _OVERHEAD,
                    )
                size += added
                end += 1
            yield begin, end

    def surrounding_bytes(
        self, templates: Sequence[SeriesTemplate], value_sizes: Sequence[int]
    ) -> list[bytes]:
        """Return the bytes around a block's points: before each of them, and after the last.

        Args:
            templates: of the points, grouped by metric.
            value_sizes: as in `blocks`.
        """
        metrics: list[tuple[bytes, bytes, list[bytes]]] = []
        inside = len(self._scope) + len(self._scope_back)
        at = 0
        for metric, group in groupby(templates, _METRIC):
            heads: list[bytes] = []
            data = len(metric.tail)
            for template in group:
                size = len(template.attribute_bytes) + value_sizes[at]
                head = _POINTS + varint(size)
                data += len(head) + size
                heads.append(head)
                at += 1
            front = metric.front + varint(data)
            front = _METRICS + varint(len(front) + data) + front
            inside += len(front) + data
            metrics.append((front, metric.tail, heads))
        resource = templates[0].resource
        scope = _SCOPES + varint(inside)
        length = len(resource.front) + len(scope) + inside + len(self._resource_back)
        pending = _RESOURCES + varint(length) + resource.front + scope + self._scope
        before: list[bytes] = []
        for front, tail, heads in metrics:
            heads[0] = pending + front + heads[0]
            before += heads
            pending = tail
        before.append(pending + self._back)
        return before

    def requests(self, sizes: Iterable[int]) -> Iterator[int]:
        """Yield how many blocks go into each request, at least one.

        Args:
            sizes: of the blocks, in bytes.
        """
        count = filled = 0
        for size in sizes:
            if count and filled + size > self._max_bytes:
                yield count
                count = filled = 0
            count += 1
            filled += size
        if count:
            yield count


@lru_cache(maxsize=1 << 12)
def varint(number: int) -> bytes:
    """Return a length encoded as a protobuf varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
