"""Templates of requests, which are filled with times and values.

The constant parts of a request are kept as bytes. Between them are the times and the values, with
eight bytes each. One call of `struct` builds the points of a resource. Requests can be
concatenated, and so can resources.
"""

from collections.abc import Collection, Sequence
from operator import attrgetter
from struct import Struct
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from pipeline.model import Value
from sinks.otlp.encoding.series_state import SeriesState
from sinks.otlp.encoding.wire_format import AS_DOUBLE, AS_INT, FIXED, START, TIME, Wire

_GAUGE: Final = len(TIME) + FIXED.size + len(AS_INT) + FIXED.size
_SUM: Final = len(START) + FIXED.size + _GAUGE

_START: Final = attrgetter("start")
_STRIDE: Final = 4
"""Arguments per point: constant bytes, time, tag of the value, value."""

_Key: TypeAlias = tuple[tuple[SeriesState, ...], tuple[int, ...]]


class Block:
    """A template for points of one resource.

    Attributes:
        size: size in bytes.

    Args:
        series: the series of the points, at least one.
        non_integer: indexes of points that are floats although the metric has integers.
        wire: serialises.
    """

    def __init__(
        self, series: Sequence[SeriesState], non_integer: Sequence[int], wire: Wire
    ) -> None:
        templates = [state.template for state in series]
        self._sums: list[SeriesState] = []
        self._sum_pieces: list[tuple[int, bytes]] = []
        self._args: list[bytes | Value | None] = []
        self._starts: list[int] = []
        code = ["<"]
        back = b""
        before = wire.surrounding_bytes(templates, value_bytes(series))
        for at, (template, head) in enumerate(zip(templates, before, strict=False)):
            instrument = template.metric.instrument
            piece = back + head
            if instrument.kind == "gauge":
                piece += TIME
            else:
                self._sums.append(series[at])
                self._sum_pieces.append((at * _STRIDE, piece))
                piece += START + FIXED.pack(0) + TIME
            whole = instrument.whole and at not in non_integer
            tag = AS_INT if whole else AS_DOUBLE
            self._args += (piece, 0, tag, 0)
            code.append(f"{len(piece)}sQ{len(tag)}s{'q' if whole else 'd'}")
            back = template.attribute_bytes
        piece = back + before[-1]
        self._args.append(piece)
        self._struct = Struct("".join((*code, f"{len(piece)}s")))
        self.size = self._struct.size

    def pack(self, times: Sequence[int], values: Sequence[Value | None]) -> bytes:
        """Return the bytes with these times and values, and the start times of the states."""
        args = self._args
        starts = list(map(_START, self._sums))
        if starts != self._starts:
            self._starts = starts
            for (at, piece), start in zip(self._sum_pieces, starts, strict=True):
                args[at] = piece + START + FIXED.pack(start) + TIME
        args[1::_STRIDE] = times
        args[3::_STRIDE] = values
        return self._struct.pack(*args)


class Blocks:
    """Makes blocks, and shares those that are still in use.

    Args:
        wire: serialises.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._made: WeakValueDictionary[_Key, Block] = WeakValueDictionary()

    def block(self, series: tuple[SeriesState, ...], non_integer: tuple[int, ...]) -> Block:
        """Return the block for these series."""
        key = (series, non_integer)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Block(series, non_integer, self.wire)
        return found


class RequestTemplate:
    """A template for the requests of some points.

    Attributes:
        non_integer: indexes of points that are floats although the metric has integers.
        is_unused: whether nothing was packed yet.

    Args:
        series: the series of the points, at least one, grouped by resource and metric.
        non_integer: see above.
        blocks: makes the blocks.
    """

    def __init__(
        self, series: Sequence[SeriesState], non_integer: Collection[int], blocks: Blocks
    ) -> None:
        self.non_integer = non_integer
        self.is_unused = True
        self._series = series
        templates = [state.template for state in series]
        floats = sorted(non_integer)
        found: list[tuple[int, int, Block]] = []
        for begin, end in blocks.wire.blocks(templates, value_bytes(series)):
            in_block = tuple(at - begin for at in floats if begin <= at < end)
            found.append((begin, end, blocks.block(tuple(series[begin:end]), in_block)))
        self._requests = blocks.wire.requests(found, lambda block: block[2].size)

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


def value_bytes(series: Sequence[SeriesState]) -> list[int]:
    """Return how many bytes of each point precede its attributes."""
    return [
        _GAUGE if state.template.metric.instrument.kind == "gauge" else _SUM for state in series
    ]
