"""Select the series that have points in a snapshot, and compute their times and values."""

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
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_MAX_TEMPLATES: Final = 4
"""Maximum number of templates of a selection. The values that can't be sent rarely change."""


class Selection:
    """Series that have points in the same snapshots.

    Attributes:
        entries: the series.
        duplicates: number of fresh readings that are left out because another has their identity.
        counters: indexes of the entries that are counters.
        template: the current template; None at first, and if no value can be sent.
    """

    def __init__(self, layout: SeriesLayout, fresh: Sequence[int]) -> None:
        self.entries: list[SeriesEntry] = layout.entries_for(fresh)
        self.duplicates = (
            len(set(fresh).intersection(layout.duplicates)) if layout.duplicates else 0
        )
        self.template: RequestTemplate | None = None
        self._templates: dict[tuple[frozenset[int], frozenset[int]], RequestTemplate] = {}
        numbered = list(enumerate(self.entries))
        self.counters = [
            at for at, entry in numbered if entry.state.template.metric.instrument.kind == "counter"
        ]
        self._computed = [(at, e.compute) for at, e in numbered if e.compute is not None]
        self._at_snapshot = [at for at, entry in numbered if entry.at_snapshot]
        self._scaled = [(at, entry.divisor) for at, entry in numbered if entry.divisor != 1]
        positions = [entry.at for entry in self.entries]
        # With only one position, itemgetter would not return a tuple.
        self._pick = itemgetter(*positions, 0)

    def times(self, snapshot: Snapshot, order: PointOrder) -> list[int]:
        """Return the wall time of each point."""
        moments = list(map(_AT, self._pick(snapshot.readings)))
        moments.pop()
        # Neighbours usually have the same time, because they were read together.
        others = compress(count(1), map(is_not, moments, moments[1:]))
        times: list[int] = []
        begin = 0
        for end in chain(others, (len(moments),)):
            times += [order(moments[begin].mono_ns)] * (end - begin)
            begin = end
        if self._at_snapshot:
            now = order(snapshot.at.mono_ns)
            for at in self._at_snapshot:
                times[at] = now
        return times

    def values(self, snapshot: Snapshot) -> list[Value | None]:
        """Return the values in the units of the catalogue; None where unknown."""
        values: list[Value | None] = list(map(_VALUE, self._pick(snapshot.readings)))
        values.pop()
        for at, compute in self._computed:
            values[at] = compute(snapshot)
        return values

    def scale(self, values: list[Value | None]) -> None:
        """Convert values to the units of their metrics, in place."""
        for at, divisor in self._scaled:
            value = values[at]
            if value is not None:
                values[at] = _divided(value, divisor)

    def use_default_template(self, blocks: Blocks) -> None:
        """If there is no template yet, make one that expects valid values of the metrics' types."""
        if self.template is None and not self._templates:
            self._use(frozenset(), frozenset(), blocks)

    def template_fits(self, values: Sequence[Value | None]) -> bool:
        """Whether the current template is likely to fit these values (a quick check)."""
        template = self.template
        if (
            template is None
            or template.omitted
            or any(_is_int64(values[at]) for at in template.non_integer)
        ):
            return False
        try:
            return math.isfinite(sum(values))  # type: ignore[arg-type]
        except (TypeError, OverflowError):  # a value is None, or an integer is too large
            return False

    def choose_template(self, values: list[Value | None], blocks: Blocks) -> int:
        """Select or make the template for these values; return how many are not finite numbers.

        Args:
            values: values that must be sent as floats are converted in place.
            blocks: makes the blocks of a new template.
        """
        omitted: set[int] = set()
        non_integer: set[int] = set()
        gaps = 0
        for at, (value, entry) in enumerate(zip(values, self.entries, strict=True)):
            whole = entry.state.template.metric.instrument.whole
            if value is None:
                omitted.add(at)
            elif whole and _is_int64(value):
                continue
            elif (number := finite(value)) is None:
                omitted.add(at)
                gaps += 1
            else:
                values[at] = number
                if whole:
                    non_integer.add(at)
        self.template = None
        if len(omitted) < len(values):
            self._use(frozenset(omitted), frozenset(non_integer), blocks)
        return gaps

    def _use(self, omitted: frozenset[int], non_integer: frozenset[int], blocks: Blocks) -> None:
        template = self._templates.pop((omitted, non_integer), None)
        if template is None:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.pop(next(iter(self._templates))).record_times()
            states = [entry.state for entry in self.entries]
            template = RequestTemplate(states, omitted, non_integer, blocks)
        self._templates[omitted, non_integer] = self.template = template

    def record_times(self) -> None:
        """Store the times of the last points in the states of the series."""
        for template in self._templates.values():
            template.record_times()


def _is_int64(value: Value | None) -> bool:
    return isinstance(value, int) and _INT64_MIN <= value <= _INT64_MAX


def finite(value: Value) -> float | None:
    """Return a value as a float; None if it is not a finite number."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _divided(value: Value, divisor: int) -> Value:
    try:
        return value / divisor
    except OverflowError:  # keep the value: a later check finds that it is too large
        return value
