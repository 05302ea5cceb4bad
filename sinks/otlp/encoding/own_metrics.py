"""Encode podgpu's own metrics as a request.

Underscores between the parts of a Prometheus name become dots. The suffixes that Prometheus adds
again, unit and `_total`, are removed. With `names: dcgm` the names stay as they are.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pipeline.base.telemetry import Family, FamilyPoints
from pipeline.model import NS
from sinks.otlp.encoding.attributes import Pairs, key_values, merged
from sinks.otlp.encoding.semconv import Instrument, Kind
from sinks.otlp.encoding.wire_format import Wire
from sinks.otlp.messages import metrics_pb2

_UNITS: Final = (("_seconds", "s"), ("_bytes", "By"))
_DOTS: Final = {"podgpu": 2, "process": 1}
"""How many underscores of a name become dots, by the first part of the name."""

NO_RECORDED_VALUE: Final = int(metrics_pb2.DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
_START_TIME: Final = "process_start_time_seconds"


@lru_cache(maxsize=256)
def instrument(family: Family, suffix: str = "", *, page: bool = False) -> Instrument:
    """Return the metric of a family. A summary has two metrics: sum and count.

    Args:
        family: the family.
        suffix: of the point.
        page: whether to use the name of the Prometheus page.
    """
    kind: Kind = "gauge" if family.type == "gauge" else "counter"
    if page:
        return Instrument(family.name + suffix, kind, "", whole=False, description=family.help)
    name, unit = family.name.removesuffix("_total"), ""
    for ending, ucum in _UNITS:
        if name.endswith(ending):
            name, unit = name.removesuffix(ending), ucum
    dots = _DOTS.get(name.partition("_")[0], 0)
    name = name.replace("_", ".", dots) + suffix.replace("_", ".")
    if suffix == "_count":
        unit = ""
    return Instrument(name, kind, unit, whole=False, description=family.help)


class SelfMetrics:
    """Makes requests of podgpu's own metrics.

    Attributes:
        front: the node's resource, serialised.
        first: time of the first request; None before it.
        last: last value of each counter, and its time, if increments are sent.
        shown: the series of the last request, with the start of counters.

    Args:
        front: the node's resource, serialised.
        wire: serialises metrics and requests.
        delta: whether counters are sent as increments.
        page: whether to use the names of the Prometheus page.
        previous: the object to replace; None for the first.
    """

    def __init__(
        self,
        front: bytes,
        wire: Wire,
        *,
        delta: bool,
        page: bool = False,
        previous: "SelfMetrics | None" = None,
    ) -> None:
        self.front = front
        self._wire = wire
        self._delta = delta
        self._page = page
        self.first: int | None = None
        self.last: dict[tuple[str, Pairs], tuple[float, int]] = {}
        self.shown: dict[tuple[Instrument, Pairs], int] = {}
        if previous is not None:
            self.first, self.last = previous.first, previous.last
            if previous.front == front:
                self.shown = previous.shown

    def request(self, now: int, families: Iterable[FamilyPoints]) -> tuple[bytes, int]:
        """Return a request and its number of points, including ends of series.

        Args:
            now: wall time, nanoseconds since the Unix epoch.
            families: the metrics; values that are not finite are left out.
        """
        family_list = list(families)
        if self.first is None:
            self.first = now
        start_times = (
            round(point.value * NS)
            for family, points in family_list
            if family.name == _START_TIME
            for point in points
            if math.isfinite(point.value)
        )
        process_start = min(next(start_times, self.first), now)
        before, self.last = self.last, {}
        ended, self.shown = self.shown, {}
        metrics: dict[Instrument, metrics_pb2.Metric] = {}
        for family, points in family_list:
            for point in points:
                if not math.isfinite(point.value):
                    continue
                pairs = merged(point.labels)
                metric = instrument(family, point.suffix, page=self._page)
                data_point = self._point(metrics, metric, pairs, now)
                data_point.as_double = point.value
                ended.pop((metric, pairs), None)
                self.shown[metric, pairs] = process_start
                if metric.kind == "gauge":
                    continue
                data_point.start_time_unix_nano = process_start
                if self._delta:
                    key = (metric.name, pairs)
                    value, since = before.get(key, (0.0, process_start))
                    self.last[key] = (point.value, now)
                    data_point.start_time_unix_nano = since
                    # After a reset, the whole value belongs to this interval.
                    data_point.as_double = point.value - (value if value <= point.value else 0.0)
        for (metric, pairs), start in ended.items():
            data_point = self._point(metrics, metric, pairs, now)
            data_point.flags = NO_RECORDED_VALUE
            if metric.kind != "gauge":
                data_point.start_time_unix_nano = start
        count = len(self.shown) + len(ended)
        return self._wire.request(self.front, metrics.values()), count

    def _point(
        self,
        metrics: dict[Instrument, metrics_pb2.Metric],
        metric: Instrument,
        pairs: Pairs,
        now: int,
    ) -> metrics_pb2.NumberDataPoint:
        message = metrics.get(metric)
        if message is None:
            message = metrics[metric] = self._wire.metric(metric)
        points = message.gauge.data_points if metric.kind == "gauge" else message.sum.data_points
        return points.add(attributes=key_values(pairs), time_unix_nano=now)
