"""Those series of a layout that have points when certain readings are fresh."""

import math
from collections.abc import Sequence
from itertools import chain, compress, count
from operator import is_not, itemgetter
from typing import Final

from pipeline.model import Reading, Snapshot, Value
from sinks.otlp.encoding.request_frames import Blocks, RequestTemplate
from sinks.otlp.encoding.series_layout import SeriesEntry, SeriesLayout
from sinks.otlp.encoding.steady_time import PointOrder

_VALUE = itemgetter(Reading._fields.index("value"))
_AT = itemgetter(Reading._fields.index("at"))
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_VARIANTS: Final = 4
"""Frames of one selection: which readings are no numbers hardly ever changes."""


class Selection:
    """Series that have points together.

    Attributes:
        entries: the series.
        duplicates: how many fresh readings are left out for their identity.
        counters: positions among the entries of those that only grow.
        template: the one in use; None before the first and when no value can be sent.
    """

    def __init__(self, shape: SeriesLayout, fresh: Sequence[int]) -> None:
        self.entries: list[SeriesEntry] = shape.entries_for(fresh)
        self.duplicates = len(set(fresh).intersection(shape.duplicates)) if shape.duplicates else 0
        self.template: RequestTemplate | None = None
        self._frames: dict[tuple[frozenset[int], frozenset[int]], RequestTemplate] = {}
        numbered = list(enumerate(self.entries))
        self.counters = [
            at for at, entry in numbered if entry.state.template.metric.instrument.kind == "counter"
        ]
        self._computed = [(at, e.compute) for at, e in numbered if e.compute is not None]
        self._late = [at for at, entry in numbered if entry.at_snapshot]
        self._scaled = [(at, entry.divisor) for at, entry in numbered if entry.divisor != 1]
        places = [entry.at for entry in self.entries]
        # With one position alone it would return no tuple.
        self._pick = itemgetter(*places, 0)

    def times(self, snapshot: Snapshot, order: PointOrder) -> list[int]:
        """Return the wall times of all points."""
        moments = list(map(_AT, self._pick(snapshot.readings)))
        moments.pop()
        # Neighbours mostly have one moment in common: they were read together.
        others = compress(count(1), map(is_not, moments, moments[1:]))
        times: list[int] = []
        begin = 0
        for end in chain(others, (len(moments),)):
            times += [order(moments[begin].mono_ns)] * (end - begin)
            begin = end
        if self._late:
            now = order(snapshot.at.mono_ns)
            for at in self._late:
                times[at] = now
        return times

    def values(self, snapshot: Snapshot) -> list[Value | None]:
        """Return all values in the model's units; None where one is unknown."""
        values: list[Value | None] = list(map(_VALUE, self._pick(snapshot.readings)))
        values.pop()
        for at, compute in self._computed:
            values[at] = compute(snapshot)
        return values

    def scale(self, values: list[Value | None]) -> None:
        """Turn values into the units of their metrics."""
        for at, divisor in self._scaled:
            value = values[at]
            if value is not None:
                values[at] = _divided(value, divisor)

    def use_default_template(self, blocks: Blocks) -> None:
        """Expect values as they ought to be, if nothing else was found out yet."""
        if self.template is None and not self._frames:
            self._use(frozenset(), frozenset(), blocks)

    def template_fits(self, values: Sequence[Value | None]) -> bool:
        """Whether the frame in use takes these values, as far as is seen at a glance."""
        frame = self.template
        if frame is None or frame.omitted or any(_whole(values[at]) for at in frame.non_integer):
            return False
        try:
            return math.isfinite(sum(values))  # type: ignore[arg-type]
        except (TypeError, OverflowError):  # an unknown one, or an integer that is too large
            return False

    def choose_template(self, values: list[Value | None], blocks: Blocks) -> int:
        """Put the frame to use that takes these values; return how many are no finite numbers.

        Args:
            values: those that have to become floats do.
            blocks: for a frame that isn't there yet.
        """
        out: set[int] = set()
        odd: set[int] = set()
        gaps = 0
        for at, (value, entry) in enumerate(zip(values, self.entries, strict=True)):
            whole = entry.state.template.metric.instrument.whole
            if value is None:
                out.add(at)
            elif whole and _whole(value):
                continue
            elif (number := finite(value)) is None:
                out.add(at)
                gaps += 1
            else:
                values[at] = number
                if whole:
                    odd.add(at)
        self.template = None
        if len(out) < len(values):
            self._use(frozenset(out), frozenset(odd), blocks)
        return gaps

    def _use(self, out: frozenset[int], odd: frozenset[int], blocks: Blocks) -> None:
        frame = self._frames.pop((out, odd), None)
        if frame is None:
            if len(self._frames) >= _VARIANTS:
                self._frames.pop(next(iter(self._frames))).record_times()
            tracks = [entry.state for entry in self.entries]
            frame = RequestTemplate(tracks, out, odd, blocks)
        self._frames[out, odd] = self.template = frame

    def record_times(self) -> None:
        """Tell the tracks when their last points were."""
        for frame in self._frames.values():
            frame.record_times()


def _whole(value: Value | None) -> bool:
    return isinstance(value, int) and _LEAST <= value <= _MOST


def finite(value: Value) -> float | None:
    """Return a value as a float; None if it is no finite number."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _divided(value: Value, divisor: int) -> Value:
    try:
        return value / divisor
    except OverflowError:  # left as it is, it is found to be too large
        return value
