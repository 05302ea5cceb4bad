"""Templates of requests, which are filled with times and values.

The constant parts of a request are kept as bytes. Between them are the times and the values, with
eight bytes each. One call of `struct` builds the points of a resource. Requests can be
concatenated, and so can resources.
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
"""Arguments per point: constant bytes, time, tag of the value, value."""

_Key: TypeAlias = tuple[tuple[SeriesState, ...], tuple[int, ...]]


class Block:
    """A template for points of one resource.

    Args:
        series: the series of the points, at least one.
        non_integer: indexes of points that are floats although the metric has integers.
        wire: serialises.
    """

    def __init__(
        self, series: Sequence[SeriesState], non_integer: Sequence[int], wire: Wire
    ) -> None:
        templates = [state.template for state in series]
        self._sum_pieces: list[tuple[int, bytes, SeriesState]] = []
        self._args: list[bytes | Value | None] = []
        self._start_version = -1
        code = ["<"]
        back = b""
        before = wire.surrounding_bytes(templates, value_bytes(series))
        for at, (template, head) in enumerate(zip(templates, before, strict=False)):
            instrument = template.metric.instrument
            piece = back + head
            if instrument.kind == "gauge":
                piece += TIME
            else:
                self._sum_pieces.append((at * _STRIDE, piece, series[at]))
                piece += START + FIXED.pack(0) + TIME
            whole = instrument.whole and at not in non_integer
            tag = AS_INT if whole else AS_DOUBLE
            self._args += (piece, 0, tag, 0)
            code.append(f"{len(piece)}sQ{len(tag)}s{'q' if whole else 'd'}")
            back = template.attribute_bytes
        piece = back + before[-1]
        self._args.append(piece)
        self._struct = Struct("".join((*code, f"{len(piece)}s")))

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._struct.size

    def start(self, start_version: int) -> None:
        """Update the start times from the states, if they changed."""
        if self._start_version != start_version:
            self._start_version = start_version
            for at, piece, state in self._sum_pieces:
                self._args[at] = piece + START + FIXED.pack(state.start) + TIME

    def pack(self, times: Sequence[int], values: Sequence[Value | None]) -> bytes:
        """Return the bytes with these times and values."""
        args = self._args
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
    """A template for the requests of a selection of points.

    Attributes:
        series: the series of the points, in the order of the requests.
        pick: indexes of the points among all points of the selection; None for all.
        omitted: indexes in the selection of points that are left out.
        non_integer: indexes in the selection of points that are floats although the metric has
            integers.
        is_unused: whether nothing was packed yet.

    Args:
        series: the series of the selection; at least one is not left out.
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
        non_integer_kept = (
            [at for at, position in enumerate(kept) if position in non_integer]
            if non_integer
            else []
        )
        templates = [state.template for state in self.series]
        self._blocks: list[tuple[int, int, Block]] = []
        for begin, end in blocks.wire.blocks(templates, value_bytes(self.series)):
            in_block = tuple([at - begin for at in non_integer_kept if begin <= at < end])
            block = blocks.block(tuple(self.series[begin:end]), in_block)
            self._blocks.append((begin, end, block))
        self._requests = list(blocks.wire.requests(block.size for *_, block in self._blocks))

    def pack(
        self, times: Sequence[int], values: Sequence[Value | None], start_version: int
    ) -> list[tuple[int, bytes]]:
        """Return the requests, each with its number of points.

        Args:
            times: times of all points that are not left out.
            values: values of the same points.
            start_version: changes whenever the start time of a series changes.

        Raises:
            struct.error: a value is not a 64-bit integer although the metric has integers.
        """
        requests: list[tuple[int, bytes]] = []
        remaining = iter(self._blocks)
        for block_count in self._requests:
            pieces: list[bytes] = []
            count = 0
            for begin, end, block in islice(remaining, block_count):
                block.start(start_version)
                pieces.append(block.pack(times[begin:end], values[begin:end]))
                count += end - begin
            requests.append((count, b"".join(pieces)))
        self._times = times
        self.is_unused = False
        return requests

    def record_times(self) -> None:
        """Store the times of the last points in the states of the series."""
        for state, time in zip(self.series, self._times, strict=False):
            if state.last is None or time > state.last:
                state.last = time


def value_bytes(series: Sequence[SeriesState]) -> list[int]:
    """Return how many bytes of each point precede its attributes."""
    return [
        _GAUGE if state.template.metric.instrument.kind == "gauge" else _SUM for state in series
    ]
