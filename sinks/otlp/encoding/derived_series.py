"""Points that no reading is: worked out of several, or of who holds a device."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import NS, Attribution, Holder, Instant, Snapshot, Value
from sinks.otlp.encoding.semconv import MEMORY_UTILIZATION, STATES, Instrument
from sinks.otlp.encoding.series_cache import DeviceSeries, SeriesCache
from sinks.otlp.encoding.wire_format import SeriesTemplate

Compute: TypeAlias = Callable[[Snapshot], Value | None]

USED: Final = "memory_used_bytes"
TOTAL: Final = "memory_total_bytes"
HEALTH: Final = ("gpu_up", "row_remap_failed", "row_remap_pending", "recovery_action")
"""What `hw.status` is worked out of."""

INPUTS: Final = frozenset({USED, TOTAL, *HEALTH})

_INTACT, _REBOOT = 0, 2
"""Recovery actions, by NVML's numbers; all others are resets and drains."""


class Derived(NamedTuple):
    """A series whose points are worked out.

    Attributes:
        template: what is the same in all of them.
        compute: returns the value; None where it is unknown.
        trigger_positions: positions of readings: it has a point in a snapshot in which one of them
            is fresh.
        at: position of the reading whose time it has; None for the snapshot's.
    """

    template: SeriesTemplate
    compute: Compute
    trigger_positions: frozenset[int]
    at: int | None = None


def of_device(
    cache: SeriesCache,
    attribution: Attribution,
    positions: Mapping[str, int],
    all_positions: frozenset[int],
) -> Iterator[Derived]:
    """Yield what is worked out for a device.

    Args:
        cache: makes the cells.
        attribution: the device and its holders.
        positions: positions of its readings without attributes that are told of, by field.
        all_positions: positions of all its readings.
    """
    known = cache.device_series(attribution)
    if cache.semconv:
        if USED in positions and TOTAL in positions:
            at, total = positions[USED], positions[TOTAL]
            yield Derived(
                cache.of_device(known, MEMORY_UTILIZATION),
                partial(_part, at, total),
                frozenset({at}),
                at,
            )
        health = {name: positions[name] for name in HEALTH if name in positions}
        if health:
            wake = frozenset(health.values())
            for state in STATES:
                yield Derived(cache.status(known, state), partial(_is, state, health), wake)
    if all_positions and attribution.holders:
        conflicts = cache.of_device(known, CONFLICTS[not cache.semconv])
        yield Derived(conflicts, partial(_same, attribution.conflicts), all_positions)
        for at, holder in enumerate(attribution.holders):
            yield from _of_holder(cache, known, at, holder, all_positions)


def _of_holder(
    cache: SeriesCache, device_series: DeviceSeries, at: int, holder: Holder, every: frozenset[int]
) -> Iterator[Derived]:
    said = (("evidence", holder.evidence.name.lower()), ("source", holder.source))
    info, share, since, age = HOLDING if cache.semconv else HOLDING_ON_PAGE
    yield Derived(cache.holding(device_series, at, holder, info, said), partial(_same, 1), every)
    if holder.share is not None:
        part = partial(_same, holder.share)
        yield Derived(cache.holding(device_series, at, holder, share), part, every)
    began = partial(_since, holder.since)
    yield Derived(cache.holding(device_series, at, holder, since), began, every)
    yield Derived(
        cache.holding(device_series, at, holder, age), partial(_age, holder.source), every
    )


def _same(value: Value, _: Snapshot) -> Value:
    return value


def _since(moment: Instant, snapshot: Snapshot) -> Value:
    return snapshot.at.wall_of(moment) / NS


def _part(used: int, total: int, snapshot: Snapshot) -> Value | None:
    whole = snapshot.readings[total].value
    try:
        return snapshot.readings[used].value / whole if whole else None
    except OverflowError:
        return math.inf


def _is(state: str, health: Mapping[str, int], snapshot: Snapshot) -> Value | None:
    found = {
        name: value
        for name, at in health.items()
        # What is no number speaks for nothing.
        if 0 <= (value := snapshot.readings[at].value) < math.inf
    }
    return int(_state(found) == state) if found else None


def _state(found: Mapping[str, Value]) -> str:
    """Return the worst state that any of the readings speaks for."""
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


def _instruments(prefix: str, *names: str, units: tuple[str, ...]) -> tuple[Instrument, ...]:
    abouts = (
        "Containers that hold the device; always 1.",
        "Part of the device that the container holds, from 0 to 1.",
        "Since when the container holds the device, as far as is known, in Unix time.",
        "Time since the source of the claim last stood by it.",
    )
    return tuple(
        Instrument(prefix + name, "gauge", unit, whole=not at, description=about)
        for at, (name, unit, about) in enumerate(zip(names, units, abouts, strict=True))
    )


HOLDING: Final = _instruments(
    "podgpu.device.holder.", "info", "share", "since_timestamp", "age", units=("", "", "s", "s")
)
HOLDING_ON_PAGE: Final = _instruments(
    "podgpu_device_holder_",
    "info",
    "share",
    "since_timestamp_seconds",
    "age_seconds",
    units=("", "", "", ""),
)

CONFLICTS: Final = tuple(
    Instrument(
        name,
        "gauge",
        "",
        whole=True,
        description="Pods whose claims on the device contradict one another.",
    )
    for name in ("podgpu.attribution.conflicts", "podgpu_attribution_conflicts")
)
