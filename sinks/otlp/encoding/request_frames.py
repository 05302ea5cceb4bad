"""Requests of one shape, to be filled in with times and values.

All of a request that doesn't change is kept as pieces of bytes; between them, eight bytes each,
stand the times and the values. One call of `struct` puts a resource's points together. Requests may
be put one behind the other, and so may resources.
"""

from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from pipeline.model import Value
from sinks.otlp.encoding.series_state import SeriesState
from sinks.otlp.encoding.wire_format import AS_DOUBLE, AS_INT, FIXED, START, TIME, Wire

_GAUGE: Final = len(TIME) + FIXED.size + len(AS_INT) + FIXED.size
_SUM: Final = len(START) + FIXED.size + _GAUGE

_STRIDE: Final = 4
"""A point is a piece, its time, the tag of its value, and its value."""

_Key: TypeAlias = tuple[tuple[SeriesState, ...], tuple[int, ...]]


class Block:
    """Points of one resource.

    Args:
        series: the points' series, at least one.
        non_integer: positions of those that are no integers, though the metric's values are.
        wire: lays out the bytes.
    """

    def __init__(
        self, series: Sequence[SeriesState], non_integer: Sequence[int], wire: Wire
    ) -> None:
        cells = [track.template for track in series]
        self._counting: list[tuple[int, bytes, SeriesState]] = []
        self._args: list[bytes | Value | None] = []
        self._starts = -1
        code = ["<"]
        back = b""
        before = wire.surrounding_bytes(cells, value_bytes(series))
        for at, (cell, head) in enumerate(zip(cells, before, strict=False)):
            instrument = cell.metric.instrument
            piece = back + head
            if instrument.kind == "gauge":
                piece += TIME
            else:
                self._counting.append((at * _STRIDE, piece, series[at]))
                piece += START + FIXED.pack(0) + TIME
            whole = instrument.whole and at not in non_integer
            tag = AS_INT if whole else AS_DOUBLE
            self._args += (piece, 0, tag, 0)
            code.append(f"{len(piece)}sQ{len(tag)}s{'q' if whole else 'd'}")
            back = cell.attribute_bytes
        piece = back + before[-1]
        self._args.append(piece)
        self._struct = Struct("".join((*code, f"{len(piece)}s")))

    @property
    def size(self) -> int:
        """How long it is, in bytes."""
        return self._struct.size

    def start(self, starts: int) -> None:
        """Put in the starting times that the tracks have now."""
        if self._starts != starts:
            self._starts = starts
            for at, piece, track in self._counting:
                self._args[at] = piece + START + FIXED.pack(track.start) + TIME

    def pack(self, times: Sequence[int], values: Sequence[Value | None]) -> bytes:
        """Return its bytes."""
        args = self._args
        args[1::_STRIDE] = times
        args[3::_STRIDE] = values
        return self._struct.pack(*args)


class Blocks:
    """Makes blocks; one that somebody still has isn't made again.

    Args:
        wire: lays out the bytes.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._made: WeakValueDictionary[_Key, Block] = WeakValueDictionary()

    def block(self, series: tuple[SeriesState, ...], non_integer: tuple[int, ...]) -> Block:
        """Return the block of these series."""
        key = (series, non_integer)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Block(series, non_integer, self.wire)
        return found


class RequestTemplate:
    """The requests of some points.

    Attributes:
        series: the points' series, in the order of the requests.
        pick: picks the points' values out of those of all points of a selection; None for all.
        omitted: positions in the selection of points that are left out.
        non_integer: positions in the selection of those that are no integers, though the metric's
            values are.
        is_unused: nothing was packed yet.

    Args:
        series: those of the selection; at least one is not left out.
        omitted: see above.
        non_integer: see above.
        blocks: makes the blocks.
    """

    def __init__(
        self,
        series: Sequence[SeriesState],
        omitted: frozenset[int],
        non_integer: frozenset[int],
        blocks: Blocks,
    ) -> None:
        kept = (
            [at for at in range(len(series)) if at not in omitted]
            if omitted
            else range(len(series))
        )
        self.series = [series[at] for at in kept]
        self.pick = kept if omitted else None
        self.omitted, self.non_integer = omitted, non_integer
        self.is_unused = True
        self._times: Sequence[int] = ()
        here = [at for at, where in enumerate(kept) if where in non_integer] if non_integer else []
        cells = [track.template for track in self.series]
        self._blocks: list[tuple[int, int, Block]] = []
        for begin, end in blocks.wire.blocks(cells, value_bytes(self.series)):
            mine = tuple([at - begin for at in here if begin <= at < end])
            block = blocks.block(tuple(self.series[begin:end]), mine)
            self._blocks.append((begin, end, block))
        self._requests = list(blocks.wire.requests(block.size for *_, block in self._blocks))

    def pack(
        self, times: Sequence[int], values: Sequence[Value | None], starts: int
    ) -> list[tuple[int, bytes]]:
        """Return the requests, each with its number of points.

        Args:
            times: of all points, those that are left out excluded.
            values: likewise.
            starts: changes whenever the starting time of a track has.

        Raises:
            struct.error: a value is no integer of 63 bits where there ought to be one.
        """
        made: list[tuple[int, bytes]] = []
        left = iter(self._blocks)
        for several in self._requests:
            pieces: list[bytes] = []
            count = 0
            for begin, end, block in islice(left, several):
                block.start(starts)
                pieces.append(block.pack(times[begin:end], values[begin:end]))
                count += end - begin
            made.append((count, b"".join(pieces)))
        self._times = times
        self.is_unused = False
        return made

    def record_times(self) -> None:
        """Tell the tracks when their last points were."""
        for track, time in zip(self.series, self._times, strict=False):
            if track.last is None or time > track.last:
                track.last = time


def value_bytes(tracks: Sequence[SeriesState]) -> list[int]:
    """Return how many bytes of each point stand before its attributes."""
    return [
        _GAUGE if track.template.metric.instrument.kind == "gauge" else _SUM for track in tracks
    ]
