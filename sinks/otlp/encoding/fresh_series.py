"""Make requests with the points of the series that are fresh in a snapshot."""

import math
import struct
from collections.abc import Sequence
from itertools import chain, compress, count
from operator import is_not, itemgetter
from typing import Any

from pipeline.model import Reading, Snapshot, Value
from sinks.otlp.encoding.attribute_sets import INT64
from sinks.otlp.encoding.request_frames import RequestTemplate
from sinks.otlp.encoding.series_layout import SeriesEntry, SeriesLayout
from sinks.otlp.encoding.steady_time import PointOrder
from sinks.otlp.encoding.wire_format import Wire

_VALUE = itemgetter(Reading._fields.index("value"))
_AT = itemgetter(Reading._fields.index("at"))


class Selection:
    """The series that have a point in each snapshot with a certain set of fresh readings.

    Attributes:
        duplicates: number of fresh readings left out because another has the same attributes.
        not_finite: number of values of the last snapshot that are not finite numbers.

    Args:
        wire: makes the blocks of requests.
        layout: the series of the layout.
        fresh: positions of the fresh readings in a snapshot.
    """

    def __init__(self, wire: Wire, layout: SeriesLayout, fresh: Sequence[int]) -> None:
        self.duplicates = (
            len(set(fresh).intersection(layout.duplicates)) if layout.duplicates else 0
        )
        self.not_finite = 0
        self._wire = wire
        self._entries: list[SeriesEntry] = layout.entries_for(fresh)
        numbered = list(enumerate(self._entries))
        self._increments = [at for at, e in numbered if wire.delta and e.state.is_counter]
        self._computed = [(at, e.compute) for at, e in numbered if e.compute is not None]
        self._at_snapshot = [at for at, entry in numbered if entry.at_snapshot]
        self._scaled = [(at, entry.divisor) for at, entry in numbered if entry.divisor != 1]
        positions = [entry.at for entry in self._entries]
        # With only one position, itemgetter would not return a tuple.
        self._pick = itemgetter(*positions, 0)
        # Without a template, no value can be sent. Values that can't be sent rarely change.
        self._template: RequestTemplate | None = None
        self._omitted: set[int] = set()
        self._kept: Sequence[int] = ()

    def requests(self, snapshot: Snapshot, order: PointOrder) -> list[tuple[int, bytes]]:
        """Return the encoded requests for a snapshot, as pairs: number of points, bytes."""
        if not self._entries:
            return []
        raw = self._values(snapshot)
        values = self._scale(self._as_increments(raw) if self._increments else raw)
        times = self._times(snapshot, order)
        self.not_finite = 0
        if not self._template_fits(values):
            self._choose_template(values)
        try:
            requests = self._pack(snapshot, times, values)
        except (struct.error, OverflowError):  # the type of a value has changed
            self._choose_template(values)
            requests = self._pack(snapshot, times, values)
        for at in self._increments:
            if at not in self._omitted:
                state = self._entries[at].state
                state.value, state.start = raw[at], times[at]
        return requests

    def _times(self, snapshot: Snapshot, order: PointOrder) -> list[int]:
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

    def _values(self, snapshot: Snapshot) -> list[Value | None]:
        """Return the values in the units of the catalogue; None where unknown."""
        values: list[Value | None] = list(map(_VALUE, self._pick(snapshot.readings)))
        values.pop()
        for at, compute in self._computed:
            values[at] = compute(snapshot)
        return values

    def _as_increments(self, raw: Sequence[Value | None]) -> list[Value | None]:
        """Return the values, with increments instead of totals for counters.

        The first increment is 0; after a reset of the counter, it is the whole value.
        """
        values = list(raw)
        for at in self._increments:
            value, before = values[at], self._entries[at].state.value
            if value is None:
                continue
            if _finite(value) is None:
                values[at] = math.inf
            elif before is None:
                values[at] = 0
            elif value >= before:
                values[at] = value - before
        return values

    def _scale(self, values: list[Value | None]) -> list[Value | None]:
        """Convert values to the units of their metrics, in place."""
        for at, divisor in self._scaled:
            value = values[at]
            if value is not None:
                try:
                    values[at] = float(value / divisor)
                except OverflowError:
                    values[at] = math.inf
        return values

    def _template_fits(self, values: Sequence[Value | None]) -> bool:
        """Whether the current template is likely to fit these values (a quick check)."""
        template = self._template
        if (
            template is None
            or self._omitted
            or any(_is_int64(values[at]) for at in template.non_integer)
        ):
            return False
        try:
            return math.isfinite(sum(values))  # type: ignore[arg-type]
        except (TypeError, OverflowError):  # a value is None, or an integer is too large
            return False

    def _choose_template(self, values: list[Value | None]) -> None:
        """Make the template for these values, unless it is the current one.

        Values that must be sent as floats are converted in place.
        """
        omitted: set[int] = set()
        non_integer: set[int] = set()
        kept: list[int] = []
        self.not_finite = 0
        for at, (value, entry) in enumerate(zip(values, self._entries, strict=True)):
            whole = entry.state.template.metric.instrument.whole
            if value is None:
                omitted.add(at)
                continue
            if not (whole and _is_int64(value)):
                number = _finite(value)
                if number is None:
                    omitted.add(at)
                    self.not_finite += 1
                    continue
                values[at] = number
                if whole:
                    non_integer.add(len(kept))
            kept.append(at)
        template = self._template
        if template is None or (omitted, non_integer) != (self._omitted, template.non_integer):
            states = [self._entries[at].state for at in kept]
            self._template = RequestTemplate(self._wire, states, non_integer) if kept else None
        self._omitted, self._kept = omitted, kept

    def _pack(
        self, snapshot: Snapshot, times: Sequence[int], values: Sequence[Any]
    ) -> list[tuple[int, bytes]]:
        template = self._template
        if template is None:
            return []
        if template.is_unused:
            for at in self._kept:
                entry = self._entries[at]
                state = entry.state
                if state.started_ns is None:
                    moment = snapshot.at if entry.at_snapshot else snapshot.readings[entry.at].at
                    state.started_ns, state.start = moment.mono_ns, times[at]
        if self._omitted:
            times = [times[at] for at in self._kept]
            values = [values[at] for at in self._kept]
        return template.pack(times, values)


def _is_int64(value: Value | None) -> bool:
    return isinstance(value, int) and value in INT64


def _finite(value: Value) -> float | None:
    """Return a value as a float; None if it is not a finite number."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
