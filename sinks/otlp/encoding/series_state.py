"""What is remembered of each series: when it began, and what its last point was."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice

from pipeline.model import Value
from sinks.otlp.encoding.wire_format import FIXED, NO_VALUE, START, TIME, Cell, Place, Wire


@dataclass(slots=True, eq=False)
class Track:
    """A series that is in the layout.

    Attributes:
        cell: what is the same in all its points.
        shape: number of the layout that it was last seen in.
        begun: since when it counts, by the monotonic clock; None before its first point.
        start: the same by the wall clock, as it is sent.
        last: time of its last point; None before the first.
        value: the value last read, of a counter that is sent in increments and of an account.
    """

    cell: Cell
    shape: int = 0
    begun: int | None = None
    start: int = 0
    last: int | None = None
    value: Value | None = None


def endings(tracks: Iterable[Track], time: int, wire: Wire) -> list[tuple[int, bytes]]:
    """Return requests that say that series have ended, each with its number of points.

    Args:
        tracks: those that have ended; who had no point has no end.
        time: of the ends, after all points so far. What is elsewhere a series of the same name goes
            on after it.
        wire: puts them together.
    """
    ended = ordered([track for track in tracks if track.last is not None])
    cells = [track.cell for track in ended]
    fronts = [_front(track, time) for track in ended]
    holes = [len(front) + len(NO_VALUE) for front in fronts]
    blocks: list[tuple[int, bytes]] = []
    for begin, end in wire.blocks(cells, holes):
        pieces: list[bytes] = []
        before = wire.around(cells[begin:end], holes[begin:end])
        for at, between in enumerate(before[:-1], begin):
            pieces += (between, fronts[at], cells[at].back, NO_VALUE)
        blocks.append((end - begin, b"".join((*pieces, before[-1]))))
    left = iter(blocks)
    found: list[tuple[int, bytes]] = []
    for several in wire.requests(len(data) for _, data in blocks):
        counts, datas = zip(*islice(left, several), strict=True)
        found.append((sum(counts), b"".join(datas)))
    return found


def _front(track: Track, time: int) -> bytes:
    packed = TIME + FIXED.pack(time)
    if track.cell.column.instrument.kind == "gauge":
        return packed
    return START + FIXED.pack(track.start) + packed


def ordered(tracks: Collection[Track]) -> list[Track]:
    """Return series as they stand in requests: by resource, and in it by metric."""
    places: dict[Place, int] = {}
    for track in tracks:
        places.setdefault(track.cell.place, len(places))
    return sorted(tracks, key=lambda t: (places[t.cell.place], t.cell.column.rank))
