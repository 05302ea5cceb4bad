"""The state of each series: its start, and its last point."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pipeline.model import Value
from sinks.otlp.encoding.wire_format import (
    FIXED,
    NO_VALUE,
    START,
    TIME,
    ResourceTemplate,
    SeriesTemplate,
    Wire,
)


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


def end_requests(series: Iterable[SeriesState], time: int, wire: Wire) -> list[tuple[int, bytes]]:
    """Return requests that mark the end of series, each with its number of points.

    Args:
        series: the series that have ended. Those without any point are left out.
        time: time of the ends, after all earlier points. If a series with the same name exists
            elsewhere, it continues after this time.
        wire: builds the requests.
    """
    ended = ordered([state for state in series if state.sent])
    templates = [state.template for state in ended]
    fronts = [_front(state, time) for state in ended]
    value_sizes = [len(front) + len(NO_VALUE) for front in fronts]
    blocks: list[tuple[int, bytes]] = []
    for begin, end in wire.blocks(templates, value_sizes):
        pieces: list[bytes] = []
        before = wire.surrounding_bytes(templates[begin:end], value_sizes[begin:end])
        for at, between in enumerate(before[:-1], begin):
            pieces += (between, fronts[at], templates[at].attribute_bytes, NO_VALUE)
        blocks.append((end - begin, b"".join((*pieces, before[-1]))))
    return [
        (sum(count for count, _ in group), b"".join(data for _, data in group))
        for group in wire.requests(blocks, lambda block: len(block[1]))
    ]


def _front(state: SeriesState, time: int) -> bytes:
    packed = TIME + FIXED.pack(time)
    if state.template.metric.instrument.kind == "gauge":
        return packed
    return START + FIXED.pack(state.start) + packed


def ordered(series: Collection[SeriesState]) -> list[SeriesState]:
    """Return series in the order of requests: by resource and, within it, by metric."""
    order: dict[ResourceTemplate, int] = {}
    for state in series:
        order.setdefault(state.template.resource, len(order))
    return sorted(series, key=lambda t: (order[t.template.resource], t.template.metric.rank))
