"""Read the metric points that a Collector has written."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Value: TypeAlias = int | float | None

NO_RECORDED_VALUE = 1
"""The flag of a point without value, which ends its series."""


@dataclass(frozen=True, slots=True)
class Point:
    """A metric point with all of its attributes.

    Attributes:
        resource: attributes of the resource.
        kind: kind of the metric.
        monotonic: whether a sum never decreases.
        temporality: 1 for deltas, 2 for cumulative sums; 0 for a gauge.
        time_ns, start_ns: nanoseconds since the Unix epoch; a start of 0 means none.
        value: None for a point without value.
    """

    resource: Mapping[str, Any]
    scope: str
    name: str
    unit: str
    kind: Literal["gauge", "sum"]
    monotonic: bool
    temporality: int
    attributes: Mapping[str, Any]
    time_ns: int
    start_ns: int
    value: Value
    flags: int

    @property
    def series(self) -> tuple[object, ...]:
        """The identity of the series."""
        return (self.name, _frozen(self.resource), _frozen(self.attributes))

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the point: only a duplicate has the same."""
        return (*self.series, self.time_ns)

    @property
    def content(self) -> tuple[object, ...]:
        """The fields that are equal in duplicates."""
        return (self.kind, self.unit, self.start_ns, self.value, self.flags)

    @property
    def ended(self) -> bool:
        return bool(self.flags & NO_RECORDED_VALUE)


@dataclass(frozen=True, slots=True)
class Request:
    """The points of one request."""

    points: tuple[Point, ...]


def requests(file: Path) -> Iterator[Request]:
    """Read a file with one request a line; the last line may be incomplete after a kill."""
    for message in messages(file):
        yield _request(message)


def messages(file: Path) -> Iterator[Mapping[str, Any]]:
    """Read a file with one message a line; the last line may be incomplete."""
    if not file.exists():
        return
    *lines, last = file.read_bytes().split(b"\n")
    for line in lines:
        yield json.loads(line)
    if _whole(last):  # an incomplete one was not acknowledged
        yield json.loads(last)


def count(file: Path) -> int:
    """Return the number of requests in a file, without parsing all of them."""
    if not file.exists():
        return 0
    *lines, last = file.read_bytes().split(b"\n")
    return len(lines) + _whole(last)


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _request(message: Mapping[str, Any]) -> Request:
    return Request(tuple(_points(message)))


def _points(message: Mapping[str, Any]) -> Iterator[Point]:
    for under in message.get("resourceMetrics", ()):
        resource = attributes_of(under.get("resource", {}).get("attributes", ()))
        for scoped in under.get("scopeMetrics", ()):
            scope = scoped.get("scope", {}).get("name", "")
            for metric in scoped.get("metrics", ()):
                yield from _of_metric(resource, scope, metric)


def _of_metric(
    resource: Mapping[str, Any], scope: str, metric: Mapping[str, Any]
) -> Iterator[Point]:
    kinds: tuple[Literal["gauge", "sum"], ...] = ("gauge", "sum")
    (kind,) = (kind for kind in kinds if kind in metric)
    data = metric[kind]
    for point in data.get("dataPoints", ()):
        yield Point(
            resource=resource,
            scope=scope,
            name=metric["name"],
            unit=metric.get("unit", ""),
            kind=kind,
            monotonic=data.get("isMonotonic", False),
            temporality=data.get("aggregationTemporality", 0),
            attributes=attributes_of(point.get("attributes", ())),
            time_ns=int(point.get("timeUnixNano", 0)),
            start_ns=int(point.get("startTimeUnixNano", 0)),
            value=_number(point),
            flags=point.get("flags", 0),
        )


def _number(point: Mapping[str, Any]) -> Value:
    if "asInt" in point:
        return int(point["asInt"])  # JSON has them as strings
    return float(point["asDouble"]) if "asDouble" in point else None


def attributes_of(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attributes of a message by name."""
    return {pair["key"]: _any(pair.get("value", {})) for pair in pairs}


def _any(value: Mapping[str, Any]) -> Any:
    if not value:
        return None
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return int(inner)
    if kind == "arrayValue":
        return tuple(_any(one) for one in inner.get("values", ()))
    return inner


def _frozen(attributes: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(attributes.items()))
