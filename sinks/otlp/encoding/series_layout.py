"""The series of a layout, in the order in which they are sent.

Some series are computed from several readings of a device, or from its holders.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import NS, Attribution, Attrs, Instant, Layout, Series, Snapshot, Value
from sinks.otlp.encoding.attribute_sets import constant_attributes
from sinks.otlp.encoding.semconv import MEMORY_UTILIZATION, STATES, STATUS, Instrument
from sinks.otlp.encoding.series_cache import SeriesCache
from sinks.otlp.encoding.wire_format import ResourceTemplate, SeriesState, SeriesTemplate

_RANK = attrgetter("state.template.metric.rank")

Compute: TypeAlias = Callable[[Snapshot], Value | None]

USED: Final = "memory_used_bytes"
TOTAL: Final = "memory_total_bytes"
HEALTH: Final = ("gpu_up", "row_remap_failed", "row_remap_pending", "recovery_action")
"""Fields from which `hw.status` is computed."""

INPUTS: Final = frozenset({USED, TOTAL, *HEALTH})

_INTACT, _REBOOT = 0, 2
"""Recovery actions with their NVML numbers. All others are resets and drains."""


class SeriesEntry(NamedTuple):
    """A series of a layout.

    Attributes:
        state: state of the series.
        at: position, in a snapshot, of the reading whose value or time the series uses.
        divisor: divides the value of the reading.
        compute: computes the value, if it is not the reading's.
        at_snapshot: whether a point has the time of the snapshot, not of the reading.
        trigger_positions: positions of readings; the series has a point if one of these is fresh.
            None for only the reading at `at`.
    """

    state: SeriesState
    at: int
    divisor: int | Fraction = 1
    compute: Compute | None = None
    at_snapshot: bool = False
    trigger_positions: frozenset[int] | None = None


class SeriesLayout:
    """The series of a layout.

    Attributes:
        layout: the layout.
        number: number of the layout, from 1; the states of its series have the same number.
        entry_by_series: the entry of each series; None if it is not sent.
        entries: grouped by resource and, within it, by metric.
        counters: the entries that are counters.
        duplicates: positions of readings left out because another has the same attributes.

    Args:
        layout: the layout.
        cache: makes the templates.
        state_of: returns the state for a template.
        previous: the layout before this one; None for the first.
    """

    def __init__(
        self,
        layout: Layout,
        cache: SeriesCache,
        state_of: Callable[[SeriesTemplate], SeriesState],
        previous: "SeriesLayout | None",
    ) -> None:
        self.layout = layout
        self.number: int = 1 if previous is None else previous.number + 1
        self.duplicates: list[int] = []
        self.entry_by_series: dict[Series, SeriesEntry | None] = {}
        known = previous.entry_by_series if previous is not None else {}
        all_entries: list[SeriesEntry] = []
        inputs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        positions: defaultdict[str, list[int]] = defaultdict(list)
        for at, series in enumerate(layout.series):
            uuid = series.attribution.device.uuid
            positions[uuid].append(at)
            if series.field in INPUTS and not series.attrs and series.field in cache.plan:
                inputs[uuid][series.field] = at
            entry = known.get(series)
            if entry is None and series not in known and (reading := cache.reading(series)):
                template, divisor = reading
                entry = SeriesEntry(state_of(template), at, divisor)
            if entry is not None and entry.at != at:
                entry = entry._replace(at=at)
            self.entry_by_series[series] = entry
            if entry is None:
                continue
            if entry.state.layout_number == self.number:
                self.duplicates.append(at)
                continue
            entry.state.layout_number = self.number
            all_entries.append(entry)
        for uuid, attribution in layout.attributions.items():
            device_positions = frozenset(positions[uuid])
            for entry in _computed(cache, state_of, attribution, inputs[uuid], device_positions):
                if entry.state.layout_number != self.number:
                    entry.state.layout_number = self.number
                    all_entries.append(entry)
        by_resource: dict[ResourceTemplate, list[SeriesEntry]] = {cache.on_node: []}
        for entry in all_entries:
            by_resource.setdefault(entry.state.template.resource, []).append(entry)
        for entries in by_resource.values():
            entries.sort(key=_RANK)
        self.entries = list(chain.from_iterable(by_resource.values()))
        self.counters = [entry for entry in self.entries if entry.state.is_counter]

    def entries_for(self, fresh: Collection[int]) -> list[SeriesEntry]:
        """Return the series that have a point in a snapshot with these fresh readings."""
        if len(fresh) == len(self.layout.series):
            return self.entries
        positions = frozenset(fresh)
        return [
            entry
            for entry in self.entries
            if (
                entry.at in positions
                if entry.trigger_positions is None
                else not entry.trigger_positions.isdisjoint(positions)
            )
        ]


def _computed(
    cache: SeriesCache,
    state_of: Callable[[SeriesTemplate], SeriesState],
    attribution: Attribution,
    positions: Mapping[str, int],
    all_positions: frozenset[int],
) -> Iterator[SeriesEntry]:
    """Yield the computed series of a device.

    Args:
        cache: makes the templates.
        state_of: returns the state for a template.
        attribution: the device and its holders.
        positions: positions of its readings without attributes, by field, for the input fields.
        all_positions: positions of all its readings.
    """

    def computed(
        compute: Compute,
        triggers: frozenset[int],
        instrument: Instrument,
        attrs: Attrs = (),
        resource: ResourceTemplate | None = None,
    ) -> SeriesEntry:
        state = state_of(cache.template(device_series, instrument, attrs, resource))
        return SeriesEntry(state, min(triggers), 1, compute, True, triggers)

    device_series = cache.device_series(attribution)
    if cache.semconv:
        if USED in positions and TOTAL in positions:
            at, total = positions[USED], positions[TOTAL]
            ratio = computed(partial(_ratio, at, total), frozenset({at}), MEMORY_UTILIZATION)
            yield ratio._replace(at_snapshot=False)
        health = {name: positions[name] for name in HEALTH if name in positions}
        if health:
            triggers = frozenset(health.values())
            constants = constant_attributes(attribution.device)
            for state in STATES:
                attrs = (*constants, ("hw.state", state))
                yield computed(partial(_is_in_state, state, health), triggers, STATUS, attrs)
    if not all_positions or not attribution.holders:
        return
    conflicts = partial(_constant, attribution.conflicts)
    yield computed(conflicts, all_positions, CONFLICTS[not cache.semconv])
    info, share, since, age = HOLDING if cache.semconv else HOLDING_ON_PAGE
    for holder, resource in zip(attribution.holders, device_series.holders, strict=True):
        attrs = (("evidence", holder.evidence.name.lower()), ("source", holder.source))
        yield computed(partial(_constant, 1), all_positions, info, attrs, resource)
        if holder.share is not None:
            part = partial(_constant, holder.share)
            yield computed(part, all_positions, share, (), resource)
        began = partial(_since, holder.since)
        yield computed(began, all_positions, since, (), resource)
        yield computed(partial(_age, holder.source), all_positions, age, (), resource)


def _constant(value: Value, _: Snapshot) -> Value:
    return value


def _since(moment: Instant, snapshot: Snapshot) -> Value:
    return snapshot.at.wall_of(moment) / NS


def _ratio(used: int, total: int, snapshot: Snapshot) -> Value | None:
    whole = snapshot.readings[total].value
    try:
        return snapshot.readings[used].value / whole if whole else None
    except OverflowError:
        return math.inf


def _is_in_state(state: str, health: Mapping[str, int], snapshot: Snapshot) -> Value | None:
    found = {
        name: value
        for name, at in health.items()
        # Ignore values that are negative or not finite.
        if 0 <= (value := snapshot.readings[at].value) < math.inf
    }
    return int(_worst_state(found) == state) if found else None


def _worst_state(found: Mapping[str, Value]) -> str:
    """Return the worst state that any of the readings indicates."""
    action = found.get("recovery_action", _INTACT)
    if found.get("gpu_up") == 0 or found.get("row_remap_failed") or action == _REBOOT:
        return "failed"
    if action != _INTACT:
        return "degraded"
    return "predicted_failure" if found.get("row_remap_pending") else "ok"


def _age(source: str, snapshot: Snapshot) -> Value | None:
    state = snapshot.sources.get(source)
    if state is None or state.confirmed_at is None:
        return None
    return max(0.0, state.confirmed_at.seconds_until(snapshot.at))


_HOLDING: Final = (
    ("info", "", "Containers that hold the device; always 1."),
    ("share", "", "Share of the device that the container holds, from 0 to 1."),
    (
        "since_timestamp",
        "s",
        "Unix time since which the container holds the device, as far as known.",
    ),
    ("age", "s", "Time since the source of the claim last confirmed it."),
)
HOLDING: Final = tuple(
    Instrument(f"podgpu.device.holder.{name}", "gauge", unit, name == "info", about)
    for name, unit, about in _HOLDING
)
HOLDING_ON_PAGE: Final = tuple(
    Instrument(
        f"podgpu_device_holder_{name}" + "_seconds" * bool(unit), "gauge", "", name == "info", about
    )
    for name, unit, about in _HOLDING
)

_CONFLICTS: Final = "Number of pods with conflicting claims on the device."
CONFLICTS: Final = tuple(
    Instrument(name, "gauge", "", whole=True, description=_CONFLICTS)
    for name in ("podgpu.attribution.conflicts", "podgpu_attribution_conflicts")
)
