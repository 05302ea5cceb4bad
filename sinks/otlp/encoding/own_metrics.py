"""Encode podgpu's own metrics as requests."""

import math
from collections.abc import Iterable
from dataclasses import replace

from pipeline.base.telemetry import FamilyPoints
from pipeline.model import NS
from sinks.otlp.encoding.attribute_sets import merged
from sinks.otlp.encoding.metric_names import own_instrument
from sinks.otlp.encoding.request_frames import RequestTemplate, end_requests, ordered
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.wire_format import SeriesState, SeriesTemplate, attributes

_START_TIME = "process_start_time_seconds"


class SelfMetrics:
    """Makes requests of podgpu's own metrics, in the node's resource.

    Attributes:
        first: time of the first request; None before it.
        states: the series of the last request, by name and attributes.

    Args:
        cache: makes the templates of metrics.
        previous: the object to replace; None for the first.
    """

    def __init__(self, cache: SeriesCache, previous: "SelfMetrics | None" = None) -> None:
        self._cache = cache
        self.first: int | None = None if previous is None else previous.first
        self.states: dict[tuple[str, bytes], SeriesState] = (
            {} if previous is None else previous.states
        )

    def requests(self, now: int, families: Iterable[FamilyPoints]) -> list[tuple[int, bytes]]:
        """Return requests with all values and the ends of series, each with its number of points.

        Args:
            now: wall time, nanoseconds since the Unix epoch.
            families: the metrics; values that are not finite are left out.
        """
        resource, wire = self._cache.on_node, self._cache.wire
        delta, found = wire.delta, list(families)
        if self.first is None:
            self.first = now
        starts = (
            round(point.value * NS)
            for family, points in found
            if family.name == _START_TIME
            for point in points
            if math.isfinite(point.value)
        )
        process_start = min(next(starts, self.first), now)
        before, self.states = self.states, {}
        totals: dict[SeriesState, float] = {}
        for family, points in found:
            for point in points:
                if not math.isfinite(point.value):
                    continue
                metric = self._cache.metric(
                    own_instrument(family, point.suffix, page=not self._cache.semconv)
                )
                pairs = attributes(merged(point.labels))
                key = (metric.instrument.name, pairs)
                state = before.pop(key, None)
                if state is None:
                    state = SeriesState(
                        SeriesTemplate(resource, metric, pairs), start=process_start
                    )
                elif state.template.resource is not resource:
                    state = replace(state, template=SeriesTemplate(resource, metric, pairs))
                self.states[key] = state
                totals[state] = point.value
        states = ordered(totals)
        values: list[float] = []
        for state in states:
            value, last = totals[state], state.value or 0.0
            if not delta:
                state.start = process_start
            elif state.is_counter and last <= value:
                value -= last  # after a reset, the whole value belongs to this interval
            values.append(value)
        requests = []
        if states:
            requests += RequestTemplate(wire, states, ()).pack([now] * len(states), values)
        for state in states:
            state.value = totals[state]
            if delta:
                state.start = now
        ended = [state for state in before.values() if state.template.resource is resource]
        return requests + end_requests(ended, now, wire)
