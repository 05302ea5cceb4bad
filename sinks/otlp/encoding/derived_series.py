"""Points that no reading is: worked out of several, or of who holds a device."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import NS, Attribution, Holder, Instant, Snapshot, Value
from sinks.otlp.encoding.semconv import MEMORY_UTILIZATION, STATES, Instrument
from sinks.otlp.encoding.series_cache import Cells, Known
from sinks.otlp.encoding.wire_format import Cell

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
        cell: what is the same in all of them.
        compute: returns the value; None where it is unknown.
        wake: positions of readings: it has a point in a snapshot in which one of them is fresh.
        at: position of the reading whose time it has; None for the snapshot's.
    """

    cell: Cell
    compute: Compute
    wake: frozenset[int]
    at: int | None = None


def of_device(
    cells: Cells, attribution: Attribution, told: Mapping[str, int], every: frozenset[int]
) -> Iterator[Derived]:
    """Yield what is worked out for a device.

    Args:
        cells: makes the cells.
        attribution: the device and its holders.
        told: positions of its readings without attributes that are told of, by field.
        every: positions of all its readings.
    """
    known = cells.known(attribution)
    if cells.semconv:
        if USED in told and TOTAL in told:
            at, total = told[USED], told[TOTAL]
            yield Derived(
                cells.of_device(known, MEMORY_UTILIZATION),
                partial(_part, at, total),
                frozenset({at}),
                at,
            )
        health = {name: told[name] for name in HEALTH if name in told}
        if health:
            wake = frozenset(health.values())
            for state in STATES:
                yield Derived(cells.status(known, state), partial(_is, state, health), wake)
    if every and attribution.holders:
        conflicts = cells.of_device(known, CONFLICTS[not cells.semconv])
        yield Derived(conflicts, partial(_same, attribution.conflicts), every)
        for at, holder in enumerate(attribution.holders):
            yield from _of_holder(cells, known, at, holder, every)


def _of_holder(
    cells: Cells, known: Known, at: int, holder: Holder, every: frozenset[int]
) -> Iterator[Derived]:
    said = (("evidence", holder.evidence.name.lower()), ("source", holder.source))
    info, share, since, age = HOLDING if cells.semconv else HOLDING_ON_PAGE
    yield Derived(cells.holding(known, at, holder, info, said), partial(_same, 1), every)
    if holder.share is not None:
        part = partial(_same, holder.share)
        yield Derived(cells.holding(known, at, holder, share), part, every)
    began = partial(_since, holder.since)
    yield Derived(cells.holding(known, at, holder, since), began, every)
    yield Derived(cells.holding(known, at, holder, age), partial(_age, holder.source), every)


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
    if state is None or state.confirmed is None:
        return None
    return max(0.0, state.confirmed.seconds_until(snapshot.at))


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
