"""The bytes of a request: constant parts, with gaps for times and values.

One call of `struct` fills the gaps of a resource, which have eight bytes each. Requests can be
concatenated, and so can resources.

Field numbers are those of the generated messages. Only tags and lengths are computed here; all
else is serialised by the protobuf library.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from pipeline.base.version import VERSION
from pipeline.model import Value
from sinks.otlp.encoding.attribute_sets import Pairs, key_values
from sinks.otlp.encoding.semconv import SCHEMA_URL, Instrument
from sinks.otlp.messages import common_pb2, metrics_pb2, metrics_service_pb2, resource_pb2

FIXED: Final = Struct("<Q")
_METRIC: Final = attrgetter("template.metric")


def attributes(pairs: Pairs) -> bytes:
    """Return the serialised attributes of a point. In a request they come after its value."""
    return metrics_pb2.NumberDataPoint(attributes=key_values(pairs)).SerializeToString()


def _tag(field: int, wire_type: int = 2) -> bytes:
    """Return the tag of a field; wire type 1 is a fixed 64-bit value, 2 a nested message."""
    return bytes([field << 3 | wire_type])


START: Final = _tag(metrics_pb2.NumberDataPoint.START_TIME_UNIX_NANO_FIELD_NUMBER, 1)
TIME: Final = _tag(metrics_pb2.NumberDataPoint.TIME_UNIX_NANO_FIELD_NUMBER, 1)
AS_DOUBLE: Final = _tag(metrics_pb2.NumberDataPoint.AS_DOUBLE_FIELD_NUMBER, 1)
AS_INT: Final = _tag(metrics_pb2.NumberDataPoint.AS_INT_FIELD_NUMBER, 1)
NO_VALUE: Final = metrics_pb2.NumberDataPoint(
    flags=metrics_pb2.DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
).SerializeToString()
_RESOURCES: Final = _tag(
    metrics_service_pb2.ExportMetricsServiceRequest.RESOURCE_METRICS_FIELD_NUMBER
)
_SCOPES: Final = _tag(metrics_pb2.ResourceMetrics.SCOPE_METRICS_FIELD_NUMBER)
_METRICS: Final = _tag(metrics_pb2.ScopeMetrics.METRICS_FIELD_NUMBER)
_GAUGE: Final = _tag(metrics_pb2.Metric.GAUGE_FIELD_NUMBER)
_SUM: Final = _tag(metrics_pb2.Metric.SUM_FIELD_NUMBER)
_POINTS: Final = _tag(metrics_pb2.Gauge.DATA_POINTS_FIELD_NUMBER)
"""The same as in a sum."""


_TIME_BYTES: Final = len(TIME) + FIXED.size
_VALUE_BYTES: Final = len(AS_INT) + FIXED.size

_START: Final = attrgetter("start")
_STRIDE: Final = 4
"""Arguments per point: constant bytes, time, tag of the value, value."""


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
        """The identity of the series: resource, name of the metric, and attributes."""
        return (self.resource, self.metric.instrument.name, self.attribute_bytes)


@dataclass(slots=True, eq=False)
class SeriesState:
    """State of a series.

    Attributes:
        template: the constant part of its points.
        layout_number: number of the last layout that contains it.
        started_ns: its start, by the monotonic clock; None before its first point.
        start: its start, by the wall clock, as it is sent.
        sent: whether it has had a point.
        value: last value of a usage account, or of a counter that is sent in increments.
    """

    template: SeriesTemplate
    layout_number: int = 0
    started_ns: int | None = None
    start: int = 0
    sent: bool = False
    value: Value | None = None

    @property
    def is_counter(self) -> bool:
        """Whether the series is a counter: a total that only increases, except when it is reset."""
        return self.template.metric.instrument.kind == "counter"


class Block:
    """A template for points of one resource.

    Attributes:
        size: size in bytes.

    Args:
        wire: builds the bytes around the points.
        series: the series of the points, at least one.
        non_integer: indexes of points that are floats although the metric has integers.
        ended: whether the points mark the ends of the series. Their values must be empty.
    """

    def __init__(
        self, wire: "Wire", series: Sequence[SeriesState], non_integer: Sequence[int], ended: bool
    ) -> None:
        self._sums: list[SeriesState] = []
        self._sum_pieces: list[tuple[int, bytes]] = []
        self._args: list[bytes | Value | None] = []
        self._starts: list[int] = []
        code = ["<"]
        back = b""
        tail = NO_VALUE if ended else b""
        before = wire.surrounding_bytes(series, len(tail) if ended else _VALUE_BYTES)
        for at, (state, head) in enumerate(zip(series, before, strict=False)):
            instrument = state.template.metric.instrument
            piece = back + head
            if instrument.kind == "gauge":
                piece += TIME
            else:
                self._sums.append(state)
                self._sum_pieces.append((at * _STRIDE, piece))
                piece += START + FIXED.pack(0) + TIME
            whole = instrument.whole and at not in non_integer
            tag, value = (b"", "0s") if ended else (AS_INT, "q") if whole else (AS_DOUBLE, "d")
            self._args += (piece, 0, tag, 0)
            code.append(f"{len(piece)}sQ{len(tag)}s{value}")
            back = state.template.attribute_bytes + tail
        piece = back + before[-1]
        self._args.append(piece)
        self._struct = Struct("".join((*code, f"{len(piece)}s")))
        self.size = self._struct.size

    def pack(self, times: Sequence[int], values: Sequence[Value | bytes | None]) -> bytes:
        """Return the bytes of the points with these times and values.

        Points of series that are not gauges also get the present start time of their series.
        """
        args = self._args
        starts = list(map(_START, self._sums))
        if starts != self._starts:
            self._starts = starts
            for (at, piece), start in zip(self._sum_pieces, starts, strict=True):
                args[at] = piece + START + FIXED.pack(start) + TIME
        args[1::_STRIDE] = times
        args[3::_STRIDE] = values
        return self._struct.pack(*args)


_Key: TypeAlias = tuple[tuple[SeriesState, ...], tuple[int, ...], bool]


class Wire:
    """Builds requests of points.

    Attributes:
        delta: whether counters are sent as increments.
        max_bytes: maximum size of a request; one with a single point may be larger.

    Args:
        schema: whether the names are those of the semantic conventions.
        delta: whether counters are sent as increments.
        most_bytes: maximum size of a request, see `max_bytes`.
    """

    def __init__(self, *, schema: bool, delta: bool, most_bytes: int) -> None:
        url = SCHEMA_URL if schema else ""
        self.delta = delta
        self.max_bytes = most_bytes
        self._scope = metrics_pb2.ScopeMetrics(
            scope=common_pb2.InstrumentationScope(name="podgpu", version=VERSION)
        ).SerializeToString()
        self._scope_back = metrics_pb2.ScopeMetrics(schema_url=url).SerializeToString()
        self._resource_back = metrics_pb2.ResourceMetrics(schema_url=url).SerializeToString()
        self._back = self._scope_back + self._resource_back
        self._made: WeakValueDictionary[_Key, Block] = WeakValueDictionary()

    @staticmethod
    def resource_bytes(pairs: Pairs) -> bytes:
        """Return the bytes of a resource with these attributes; see `ResourceTemplate.front`."""
        return metrics_pb2.ResourceMetrics(
            resource=resource_pb2.Resource(attributes=key_values(pairs))
        ).SerializeToString()

    def metric_template(self, instrument: Instrument, rank: int) -> MetricTemplate:
        """Return the template of a metric."""
        front = metrics_pb2.Metric(
            name=instrument.name, description=instrument.description, unit=instrument.unit
        ).SerializeToString()
        if instrument.kind == "gauge":
            return MetricTemplate(instrument, rank, front + _GAUGE, b"")
        counter = instrument.kind == "counter"
        temporality = metrics_pb2.AggregationTemporality.Value(
            f"AGGREGATION_TEMPORALITY_{'DELTA' if self.delta and counter else 'CUMULATIVE'}"
        )
        tail = metrics_pb2.Sum(is_monotonic=counter, aggregation_temporality=temporality)
        return MetricTemplate(instrument, rank, front + _SUM, tail.SerializeToString())

    def block(
        self, series: tuple[SeriesState, ...], non_integer: tuple[int, ...], ended: bool
    ) -> Block:
        """Return the block for these series, which is shared while it is in use."""
        key = (series, non_integer, ended)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Block(self, *key)
        return found

    def surrounding_bytes(self, series: Sequence[SeriesState], value_size: int) -> list[bytes]:
        """Return the bytes around a block's points: before each of them, and after the last.

        Args:
            series: the series of the points, grouped by metric.
            value_size: number of bytes of a point without its attributes and times.
        """
        metrics: list[tuple[bytes, bytes, list[bytes]]] = []
        inside = len(self._scope) + len(self._scope_back)
        for metric, group in groupby(series, _METRIC):
            times = _TIME_BYTES if metric.instrument.kind == "gauge" else 2 * _TIME_BYTES
            heads: list[bytes] = []
            data = len(metric.tail)
            for state in group:
                size = len(state.template.attribute_bytes) + value_size + times
                head = _POINTS + varint(size)
                data += len(head) + size
                heads.append(head)
            front = metric.front + varint(data)
            front = _METRICS + varint(len(front) + data) + front
            inside += len(front) + data
            metrics.append((front, metric.tail, heads))
        resource = series[0].template.resource
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


@lru_cache(maxsize=1 << 12)
def varint(number: int) -> bytes:
    """Return a length encoded as a protobuf varint."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
