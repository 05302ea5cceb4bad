"""What continues from one pass through a recording to the next: a loop is played as one node."""

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast

from pipeline.fields import CATALOGUE
from pipeline.model import (
    DeviceUse,
    Event,
    Instant,
    ProcessesSampled,
    Reading,
    SamplesTaken,
    Value,
    XidsReported,
)

MAX_SERIES: Final = 50_000
"""How many counters continue, which bounds the memory; a node with 16 GPUs has a few thousand."""

_LARGEST: Final = 1 << 63
"""Larger numbers are no counters: a damaged recording may contain any number."""

_COUNTERS: Final = frozenset(field.name for field in CATALOGUE if field.type == "counter")

_Key: TypeAlias = tuple[Hashable, ...]


@dataclass(slots=True)
class _Counter:
    """A counter as it was last played.

    Attributes:
        number: the pass in which it was played.
        recorded: its recorded value.
        added: what this pass adds to recorded values.
        value: the value that was played.
        window_start: since when it counts, as played; None where that is unknown.
    """

    number: int
    recorded: Value
    added: Value
    value: Value
    window_start: Instant | None


class Continuation:
    """Converts the events of later passes, so that they continue those of the pass before.

    - A counter continues at its last value. It does not count between its last reading in a pass
      and its first one in the next. Where it decreases in the recording it was reset, and is
      played as recorded from there on.
    - The first usage sample of a device in a pass follows the last one of the pass before, if that
      is still valid. The busy time between them is unknown.
    - XID errors before the recording happened only once: later passes omit them.
    """

    def __init__(self) -> None:
        self._number = 0
        self._started: Instant | None = None
        self._first: Instant | None = None
        self._counters: dict[_Key, _Counter] = {}
        self._sampled: dict[tuple[str, str], tuple[int, DeviceUse]] = {}

    def begin_pass(self, started: Instant, began: Instant) -> Instant:
        """Begin a pass; return when the first pass through this recording began.

        If the file was replaced by another recording, nothing continues.

        Args:
            started: the start of the recording.
            began: when the pass began.
        """
        if self._first is None or started != self._started:
            self._started, self._first, self._number = started, began, 0
            self._counters.clear()
            self._sampled.clear()
        self._number += 1
        return self._first

    def continued(self, source: str, recorded: Event, moved: Event) -> Event:
        """Return an event as it continues the passes before.

        Args:
            source: name of the source on the recorded node.
            recorded: the event as recorded.
            moved: the same event with the times of this pass.
        """
        match recorded, moved:
            case SamplesTaken(before), SamplesTaken(readings):
                pairs = zip(before, readings, strict=True)
                continued = tuple([self._reading(source, old, new) for old, new in pairs])
                return SamplesTaken(continued, moved.processes)
            case ProcessesSampled(), ProcessesSampled(uses):
                return ProcessesSampled(tuple([self._use(source, use) for use in uses]))
            case XidsReported(errors), XidsReported(reports) if self._number > 1:
                in_pass = [self._in_pass(error.at) for error in errors]
                return XidsReported(tuple(itertools.compress(reports, in_pass)))
            case _:
                return moved

    def _in_pass(self, recorded: Instant) -> bool:
        return self._started is not None and recorded.mono_ns >= self._started.mono_ns

    def _reading(self, source: str, recorded: Reading, moved: Reading) -> Reading:
        if moved.field not in _COUNTERS:
            return moved
        start = recorded.window_start
        counter = self._count(
            (source, moved.device, moved.field, moved.attrs),
            moved.value,
            moved.window_start,
            # A counter that was 0 in the recording, such as XID errors, counts from there.
            first=0 if start is not None and self._in_pass(start) else moved.value,
        )
        if counter is None or self._number == 1:
            return moved
        return moved._replace(value=counter.value, window_start=counter.window_start)

    def _use(self, source: str, use: DeviceUse) -> DeviceUse:
        place = (source, use.device)
        number, last = self._sampled.get(place, (0, use))
        if use.since is None and 0 < number < self._number:
            apart_ns = use.at.mono_ns - last.at.mono_ns
            if 0 < apart_ns <= last.good_for_ns:
                use = replace(use, since=last.at)
        if use.energy_mj is not None:
            energy = self._count(place, use.energy_mj, None, first=use.energy_mj)
            if energy is not None:
                use = replace(use, energy_mj=cast("int", energy.value))
        if place in self._sampled or len(self._sampled) < MAX_SERIES:
            self._sampled[place] = self._number, use
        return use

    def _count(
        self, key: _Key, recorded: Value, window_start: Instant | None, first: Value
    ) -> _Counter | None:
        """Return a counter with its value in this pass; None if it does not continue.

        Args:
            key: the series.
            recorded: the recorded value.
            window_start: since when it counts, with the times of this pass.
            first: the recorded value at the start of the pass.
        """
        known = self._counters.get(key)
        if known is None and len(self._counters) >= MAX_SERIES:
            return None
        if not 0 <= recorded < _LARGEST:
            return None
        added: Value = 0
        if known is not None and known.number != self._number:
            added, window_start = known.value - first, known.window_start
        elif known is not None and recorded >= known.recorded:
            added, window_start = known.added, known.window_start
        if recorded + added >= _LARGEST:
            return None
        counter = _Counter(self._number, recorded, added, recorded + added, window_start)
        self._counters[key] = counter
        return counter
