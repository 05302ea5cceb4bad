"""Requests of points: templates that are filled with times and values, and ends of series."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from pipeline.model import Value
from sinks.otlp.encoding.wire_format import Block, ResourceTemplate, SeriesState, Wire

_RESOURCE = attrgetter("template.resource")


class RequestTemplate:
    """A template for the requests of some points.

    Attributes:
        non_integer: indexes of points that are floats although the metric has integers.
        is_unused: whether nothing was packed yet.

    Args:
        wire: makes blocks and groups them.
        series: the series of the points, at least one, grouped by resource and metric.
        non_integer: indexes of points that are floats although the metric has integers.
        ended: whether the points mark the ends of the series. Their values must be empty bytes.
    """

    def __init__(
        self,
        wire: Wire,
        series: Sequence[SeriesState],
        non_integer: Collection[int],
        *,
        ended: bool = False,
    ) -> None:
        self.non_integer = non_integer
        self.is_unused = True
        self._wire = wire
        self._series = series
        self._floats = sorted(non_integer)
        self._ended = ended
        self._requests: list[list[tuple[int, int, Block]]] = []
        end = filled = 0
        for _, group in groupby(series, _RESOURCE):
            begin, end = end, end + len(list(group))
            for block in self._blocks(begin, end):
                size = block[2].size
                if not self._requests or filled + size > wire.max_bytes:
                    self._requests.append([])
                    filled = 0
                self._requests[-1].append(block)
                filled += size

    def _blocks(self, begin: int, end: int) -> Iterator[tuple[int, int, Block]]:
        """Yield blocks that fit into a request or have one point, and the range of their points."""
        floats = tuple(at - begin for at in self._floats if begin <= at < end)
        block = self._wire.block(tuple(self._series[begin:end]), floats, self._ended)
        if block.size <= self._wire.max_bytes or end - begin == 1:
            yield begin, end, block
        else:
            middle = (begin + end) // 2
            yield from self._blocks(begin, middle)
            yield from self._blocks(middle, end)

    def pack(
        self, times: Sequence[int], values: Sequence[Value | bytes | None]
    ) -> list[tuple[int, bytes]]:
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
        series: the series that have ended. Series that never had a point are left out.
        time: time of the ends, after all earlier points. If a series with the same name exists
            elsewhere, it continues after this time.
        wire: builds the requests.
    """
    ended = ordered([state for state in series if state.sent])
    if not ended:
        return []
    template = RequestTemplate(wire, ended, (), ended=True)
    return template.pack([time] * len(ended), [b""] * len(ended))


def ordered(series: Collection[SeriesState]) -> list[SeriesState]:
    """Return series in the order of requests: by resource and, within it, by metric."""
    order: dict[ResourceTemplate, int] = {}
    for state in series:
        order.setdefault(state.template.resource, len(order))
    return sorted(series, key=lambda t: (order[t.template.resource], t.template.metric.rank))
