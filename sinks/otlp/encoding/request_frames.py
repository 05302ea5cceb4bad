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
from sinks.otlp.encoding.series_state import Track
from sinks.otlp.encoding.wire_format import AS_DOUBLE, AS_INT, FIXED, START, TIME, Wire

_GAUGE: Final = len(TIME) + FIXED.size + len(AS_INT) + FIXED.size
_SUM: Final = len(START) + FIXED.size + _GAUGE

_STRIDE: Final = 4
"""A point is a piece, its time, the tag of its value, and its value."""

_Key: TypeAlias = tuple[tuple[Track, ...], tuple[int, ...]]


class Block:
    """Points of one resource.

    Args:
        tracks: the points' series, at least one.
        odd: positions of those that are no integers, though the metric's values are.
        wire: lays out the bytes.
    """

    def __init__(self, tracks: Sequence[Track], odd: Sequence[int], wire: Wire) -> None:
        cells = [track.cell for track in tracks]
        self._counting: list[tuple[int, bytes, Track]] = []
        self._args: list[bytes | Value | None] = []
        self._starts = -1
        code = ["<"]
        back = b""
        before = wire.around(cells, holes(tracks))
        for at, (cell, head) in enumerate(zip(cells, before, strict=False)):
            instrument = cell.column.instrument
            piece = back + head
            if instrument.kind == "gauge":
                piece += TIME
            else:
                self._counting.append((at * _STRIDE, piece, tracks[at]))
                piece += START + FIXED.pack(0) + TIME
            whole = instrument.whole and at not in odd
            tag = AS_INT if whole else AS_DOUBLE
            self._args += (piece, 0, tag, 0)
            code.append(f"{len(piece)}sQ{len(tag)}s{'q' if whole else 'd'}")
            back = cell.back
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

    def block(self, tracks: tuple[Track, ...], odd: tuple[int, ...]) -> Block:
        """Return the block of these series."""
        key = (tracks, odd)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Block(tracks, odd, self.wire)
        return found


class Frame:
    """The requests of some points.

    Attributes:
        tracks: the points' series, in the order of the requests.
        keep: picks the points' values out of those of all points of a selection; None for all.
        out: positions in the selection of points that are left out.
        odd: positions in the selection of those that are no integers, though the metric's values
            are.
        fresh: nothing was packed yet.

    Args:
        tracks: those of the selection; at least one is not left out.
        out: see above.
        odd: see above.
        blocks: makes the blocks.
    """

    def __init__(
        self, tracks: Sequence[Track], out: frozenset[int], odd: frozenset[int], blocks: Blocks
    ) -> None:
        kept = [at for at in range(len(tracks)) if at not in out] if out else range(len(tracks))
        self.tracks = [tracks[at] for at in kept]
        self.keep = kept if out else None
        self.out, self.odd = out, odd
        self.fresh = True
        self._times: Sequence[int] = ()
        here = [at for at, where in enumerate(kept) if where in odd] if odd else []
        cells = [track.cell for track in self.tracks]
        self._blocks: list[tuple[int, int, Block]] = []
        for begin, end in blocks.wire.blocks(cells, holes(self.tracks)):
            mine = tuple([at - begin for at in here if begin <= at < end])
            block = blocks.block(tuple(self.tracks[begin:end]), mine)
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
        self.fresh = False
        return made

    def note(self) -> None:
        """Tell the tracks when their last points were."""
        for track, time in zip(self.tracks, self._times, strict=False):
            if track.last is None or time > track.last:
                track.last = time


def holes(tracks: Sequence[Track]) -> list[int]:
    """Return how many bytes of each point stand before its attributes."""
    return [_GAUGE if track.cell.column.instrument.kind == "gauge" else _SUM for track in tracks]
