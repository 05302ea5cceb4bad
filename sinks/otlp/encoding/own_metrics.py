"""podgpu's own metrics as a request.

The names of the Prometheus page take dots where they have parts, and lose what Prometheus puts on
again: the unit, and `_total`. Among DCGM's names they stay as they are.
"""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from pipeline.base.telemetry import Family, FamilyPoints
from pipeline.model import NS
from sinks.otlp.encoding.attributes import Pairs, key_values, merged
from sinks.otlp.encoding.semconv import Instrument, Kind
from sinks.otlp.encoding.wire_format import Wire
from sinks.otlp.messages import DataPointFlags, Metric, NumberDataPoint

_UNITS: Final = (("_seconds", "s"), ("_bytes", "By"))
_DOTS: Final = {"podgpu": 2, "process": 1}
"""How many underscores of a name become dots, by its first word."""

NO_RECORDED_VALUE: Final = int(DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
_STARTED: Final = "process_start_time_seconds"


@lru_cache(maxsize=256)
def instrument(family: Family, suffix: str = "", *, page: bool = False) -> Instrument:
    """Return the metric of a family; a summary has two, of its sum and of its count.

    Args:
        family: what it is of.
        suffix: of the point.
        page: whether it has the page's name.
    """
    kind: Kind = "gauge" if family.type == "gauge" else "counter"
    if page:
        return Instrument(family.name + suffix, kind, "", whole=False, description=family.help)
    name, unit = family.name.removesuffix("_total"), ""
    for ending, known in _UNITS:
        if name.endswith(ending):
            name, unit = name.removesuffix(ending), known
    dots = _DOTS.get(name.partition("_")[0], 0)
    name = name.replace("_", ".", dots) + suffix.replace("_", ".")
    if suffix == "_count":
        unit = ""
    return Instrument(name, kind, unit, whole=False, description=family.help)


class _SelfMetricsState(NamedTuple):
    """What was told: in which resource, since when, the last values, and what was shown last."""

    front: bytes
    first: int | None
    last: dict[tuple[str, Pairs], tuple[float, int]]
    shown: dict[tuple[Instrument, Pairs], int]


class SelfMetrics:
    """Makes requests of podgpu's own metrics.

    Args:
        front: the node's resource, serialised.
        wire: knows what stands around metrics.
        delta: whether counters are sent as increments.
        page: whether they have the page's names.
        previous: the one whose place this takes; None for the first.
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
        self._front = front
        self._wire = wire
        self._delta = delta
        self._page = page
        self._first: int | None = None
        self._last: dict[tuple[str, Pairs], tuple[float, int]] = {}
        self._shown: dict[tuple[Instrument, Pairs], int] = {}
        if previous is not None:
            where, self._first, self._last, shown = previous.handover()
            if where == front:
                self._shown = shown

    def handover(self) -> _SelfMetricsState:
        """Return what another needs that goes on."""
        return _SelfMetricsState(self._front, self._first, self._last, self._shown)

    def request(self, now: int, families: Iterable[FamilyPoints]) -> tuple[bytes, int]:
        """Return a request and how many points it holds, ends of series among them.

        Args:
            now: the wall time, nanoseconds since the Unix epoch.
            families: what is told; values that are no finite numbers are left out.
        """
        told = list(families)
        if self._first is None:
            self._first = now
        began = min(next(_started(told), self._first), now)
        before, self._last = self._last, {}
        ended, self._shown = self._shown, {}
        metrics: dict[Instrument, Metric] = {}
        for family, points in told:
            for point in points:
                if not math.isfinite(point.value):
                    continue
                pairs = merged(point.labels)
                metric = instrument(family, point.suffix, page=self._page)
                found = self._point(metrics, metric, pairs, now)
                found.as_double = point.value
                ended.pop((metric, pairs), None)
                self._shown[metric, pairs] = began
                if metric.kind == "gauge":
                    continue
                found.start_time_unix_nano = began
                if self._delta:
                    key = (metric.name, pairs)
                    value, since = before.get(key, (0.0, began))
                    self._last[key] = (point.value, now)
                    found.start_time_unix_nano = since
                    # What began anew has all that it has from this span.
                    found.as_double = point.value - (value if value <= point.value else 0.0)
        for (metric, pairs), start in ended.items():
            found = self._point(metrics, metric, pairs, now)
            found.flags = NO_RECORDED_VALUE
            if metric.kind != "gauge":
                found.start_time_unix_nano = start
        count = len(self._shown) + len(ended)
        return self._wire.request(self._front, metrics.values()), count

    def _point(
        self, metrics: dict[Instrument, Metric], metric: Instrument, pairs: Pairs, now: int
    ) -> NumberDataPoint:
        made = metrics.get(metric)
        if made is None:
            made = metrics[metric] = self._wire.metric(metric)
        into = made.gauge.data_points if metric.kind == "gauge" else made.sum.data_points
        return into.add(attributes=key_values(pairs), time_unix_nano=now)


def _started(families: Iterable[FamilyPoints]) -> Iterator[int]:
    for family, points in families:
        if family.name == _STARTED:
            for point in points:
                if math.isfinite(point.value):
                    yield round(point.value * NS)
