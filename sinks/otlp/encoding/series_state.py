"""What is remembered of each series: when it began, and what its last point was."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

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
    """A series that is in the layout.

    Attributes:
        template: what is the same in all its points.
        layout_number: number of the layout that it was last seen in.
        started_ns: since when it counts, by the monotonic clock; None before its first point.
        start: the same by the wall clock, as it is sent.
        last: time of its last point; None before the first.
        value: the value last read, of a counter that is sent in increments and of an account.
    """

    template: SeriesTemplate
    layout_number: int = 0
    started_ns: int | None = None
    start: int = 0
    last: int | None = None
    value: Value | None = None


def end_requests(series: Iterable[SeriesState], time: int, wire: Wire) -> list[tuple[int, bytes]]:
    """Return requests that say that series have ended, each with its number of points.

    Args:
        series: those that have ended; who had no point has no end.
        time: of the ends, after all points so far. What is elsewhere a series of the same name goes
            on after it.
        wire: puts them together.
    """
    ended = ordered([track for track in series if track.last is not None])
    cells = [track.template for track in ended]
    fronts = [_front(track, time) for track in ended]
    holes = [len(front) + len(NO_VALUE) for front in fronts]
    blocks: list[tuple[int, bytes]] = []
    for begin, end in wire.blocks(cells, holes):
        pieces: list[bytes] = []
        before = wire.surrounding_bytes(cells[begin:end], holes[begin:end])
        for at, between in enumerate(before[:-1], begin):
            pieces += (between, fronts[at], cells[at].attribute_bytes, NO_VALUE)
        blocks.append((end - begin, b"".join((*pieces, before[-1]))))
    left = iter(blocks)
    found: list[tuple[int, bytes]] = []
    for several in wire.requests(len(data) for _, data in blocks):
        counts, datas = zip(*islice(left, several), strict=True)
        found.append((sum(counts), b"".join(datas)))
    return found


def _front(track: SeriesState, time: int) -> bytes:
    packed = TIME + FIXED.pack(time)
    if track.template.metric.instrument.kind == "gauge":
        return packed
    return START + FIXED.pack(track.start) + packed


def ordered(series: Collection[SeriesState]) -> list[SeriesState]:
    """Return series as they stand in requests: by resource, and in it by metric."""
    places: dict[ResourceTemplate, int] = {}
    for track in series:
        places.setdefault(track.template.resource, len(places))
    return sorted(series, key=lambda t: (places[t.template.resource], t.template.metric.rank))
