"""Metric records decoded with the protobuf classes of OTLP."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from pipeline.delivery.contract import Record
from pipeline.model import NS, Instant, Pod, PodInfo, PodsReplaced, Snapshot
from tests.support.nodes import Node, at, claims

Attributes: TypeAlias = tuple[tuple[str, str | int], ...]
Identity: TypeAlias = tuple[Attributes, str, Attributes]

ENDED = 1


@dataclass(frozen=True, slots=True)
class Point:
    """A data point with its resource and its metric."""

    resource: Attributes = field(repr=False)
    name: str
    attributes: Attributes
    time: int
    value: int | float | None
    start: int = 0
    kind: str = "gauge"
    unit: str = ""
    ended: bool = False
    temporality: int = 0
    schemas: tuple[str, str] = ("", "")
    about: str = field(default="", repr=False)

    @property
    def identity(self) -> Identity:
        return (self.resource, self.name, self.attributes)

    def of(self, name: str) -> str | int | None:
        """Return an attribute of the point, or else of its resource."""
        return dict(self.attributes).get(name, dict(self.resource).get(name))


def points(records: Iterable[Record]) -> list[Point]:
    """Decode records; each must equal the protobuf library's serialization of its request."""
    found: list[Point] = []
    for record in records:
        request = ExportMetricsServiceRequest.FromString(record.data)
        assert request.SerializeToString() == record.data
        decoded = list(_points(request))
        assert len(decoded) == record.points > 0
        found += decoded
    return found


def _points(request: ExportMetricsServiceRequest) -> Iterable[Point]:
    assert request.resource_metrics
    for under in request.resource_metrics:
        resource = _attributes(under.resource.attributes)
        (scoped,) = under.scope_metrics
        assert scoped.scope.name == "podgpu"
        assert scoped.metrics
        for metric in scoped.metrics:
            kind = str(metric.WhichOneof("data"))
            data = getattr(metric, kind)
            assert data.data_points
            if kind == "sum":
                kind = "counter" if data.is_monotonic else "updowncounter"
            for point in data.data_points:
                which = point.WhichOneof("value")
                yield Point(
                    resource,
                    metric.name,
                    _attributes(point.attributes),
                    point.time_unix_nano,
                    getattr(point, which) if which else None,
                    point.start_time_unix_nano,
                    kind,
                    metric.unit,
                    bool(point.flags & ENDED),
                    0 if kind == "gauge" else data.aggregation_temporality,
                    (under.schema_url, scoped.schema_url),
                    metric.description,
                )


def _attributes(pairs: Iterable[KeyValue]) -> Attributes:
    found = []
    for pair in pairs:
        which = pair.value.WhichOneof("value")
        assert which in {"string_value", "int_value"}
        assert pair.key
        found.append((pair.key, getattr(pair.value, which)))
    assert len(dict(found)) == len(found)
    return tuple(sorted(found, key=lambda pair: pair[0]))


def named(found: Iterable[Point], name: str) -> list[Point]:
    return [point for point in found if point.name == name]


def pods(node: Node, *infos: PodInfo) -> None:
    node.say(PodsReplaced(tuple(Pod(info, at(-60)) for info in infos), 300 * NS), "pods", "pods")


def held(node: Node, *held_claims: object) -> None:
    node.say(claims(*held_claims), "podlist", "podlist")  # type: ignore[arg-type]


def shifted(snapshot: Snapshot, wall_ns: int) -> Snapshot:
    """Return the snapshot as if the wall clock had been set by `wall_ns`."""

    def moved(moment: Instant) -> Instant:
        return Instant(moment.mono_ns, moment.wall_ns + wall_ns)

    return replace(
        snapshot,
        at=moved(snapshot.at),
        readings=tuple(r._replace(at=moved(r.at)) for r in snapshot.readings),
    )
