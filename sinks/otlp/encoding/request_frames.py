"""Requests of points: templates that are filled with times and values, and ends of series."""

from collections.abc import Collection, Iterable, Sequence

from pipeline.model import Value
from sinks.otlp.encoding.wire_format import (
    FIXED,
    NO_VALUE,
    START,
    TIME,
    Block,
    ResourceTemplate,
    SeriesState,
    Wire,
    value_bytes,
)


class RequestTemplate:
    """A template for the requests of some points.

    Attributes:
        non_integer: indexes of points that are floats although the metric has integers.
        is_unused: whether nothing was packed yet.

    Args:
        wire: makes blocks and groups them.
        series: the series of the points, at least one, grouped by resource and metric.
        non_integer: see above.
    """

    def __init__(
        self, wire: Wire, series: Sequence[SeriesState], non_integer: Collection[int]
    ) -> None:
        self.non_integer = non_integer
        self.is_unused = True
        self._series = series
        templates = [state.template for state in series]
        floats = sorted(non_integer)
        found: list[tuple[int, int, Block]] = []
        for begin, end in wire.blocks(templates, value_bytes(series)):
            in_block = tuple(at - begin for at in floats if begin <= at < end)
            found.append((begin, end, wire.block(tuple(series[begin:end]), in_block)))
        self._requests = wire.requests(found, lambda block: block[2].size)

    def pack(self, times: Sequence[int], values: Sequence[Value | None]) -> list[tuple[int, bytes]]:
        """Return the requests, each with its number of points.

        Args:
            times: times of the points.
            values: values of the points.

        Raises:
            struct.error: a value is not a 64-bit integer although the metric has integers.
        """
        requests = [
            (
                blocks[-1][1] - blocks[0][0],
                b"".join([block.pack(times[at:end], values[at:end]) for at, end, block in blocks]),
            )
            for blocks in self._requests
        ]
        if self.is_unused:
            self.is_unused = False
            for state in self._series:
                state.sent = True
        return requests


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
