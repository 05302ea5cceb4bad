"""Snapshots as lines of JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import orjson

from pipeline.base.telemetry import FamilyPoints
from pipeline.fields import CATALOGUE, FieldPlan
from pipeline.model import NS, Attribution, Holder, Instant, Snapshot
from sinks.jsonl import json_objects
from sinks.jsonl.json_text import dump, finite, json_line, rfc3339

PREFIX: Final = b'{"record":"'
"""How each of our lines begins."""

_LISTED: Final = frozenset(known.name for known in CATALOGUE if known.attrs)
"""Fields whose readings are told apart by attributes: a list each, even for a single reading."""


@dataclass(slots=True)
class Batch:
    """Lines to be written at once.

    Attributes:
        lines: each with its end.
        readings: how many readings stand in each line.
        not_finite: readings that were left out, since JSON has no number for them.
    """

    lines: list[bytes] = field(default_factory=list)
    readings: list[int] = field(default_factory=list)
    not_finite: int = 0

    def add(self, line: bytes, readings: int) -> None:
        """Add a line."""
        self.lines.append(line)
        self.readings.append(readings)

    def whole(self, written: int) -> tuple[int, int]:
        """Return how many lines are whole in so many bytes, and how many bytes those take."""
        border = 0
        for count, line in enumerate(self.lines):
            if border + len(line) > written:
                return count, border
            border += len(line)
        return len(self.lines), border

    def size(self, lines: int) -> int:
        """Return how many bytes the first lines take."""
        return sum(len(line) for line in self.lines[:lines])


@dataclass(slots=True)
class _DeviceReadings:
    """What of a device was read."""

    newest: Instant
    count: int = 0
    readings: dict[str, Any] = field(default_factory=dict)


class _Parts(NamedTuple):
    """What of a line stays the same while nothing about the device or its holders changes."""

    device: orjson.Fragment
    holders: list[tuple[Holder, bytes]]


class LineEncoder:
    """Makes lines; what it rendered for a device it keeps while the join keeps its attribution.

    Args:
        node: the node's name.
        plan: the fields that are written.
    """

    def __init__(self, node: str, plan: FieldPlan) -> None:
        self._node = orjson.Fragment(dump(node))
        self._names = frozenset(known.name for known in plan.fields)
        self._parts: WeakKeyDictionary[Attribution, _Parts] = WeakKeyDictionary()

    def devices(self, snapshot: Snapshot) -> Batch:
        """Return a line for each device that was read since the snapshot before."""
        batch = Batch()
        found: dict[str, _DeviceReadings] = {}
        series, readings, names = snapshot.layout.series, snapshot.readings, self._names
        for place in snapshot.fresh:
            name, attrs = series[place].field, series[place].attrs
            if name not in names:
                continue
            reading = readings[place]
            value = reading.value
            if not finite(value):
                batch.not_finite += 1
                continue
            device = found.get(reading.device)
            if device is None:
                device = found[reading.device] = _DeviceReadings(reading.at)
            device.count += 1
            if reading.at.mono_ns > device.newest.mono_ns:
                device.newest = reading.at
            told = device.readings
            if attrs or name in _LISTED:
                known = told.setdefault(name, [])
                if type(known) is not list:  # a source gave attributes to one reading of two
                    known = told[name] = [{"value": known}]
                known.append({**dict(attrs), "value": value})
            else:
                told[name] = value
        for uuid, attribution in snapshot.layout.attributions.items():
            device = found.get(uuid)
            if device is not None:
                batch.add(self._line(snapshot, attribution, device), device.count)
        return batch

    def telemetry(self, at: Instant, families: Iterable[FamilyPoints]) -> bytes:
        """Return podgpu's own metrics as one line."""
        metrics = [
            {"name": family.name + point.suffix, "labels": dict(point.labels), "value": point.value}
            for family, points in families
            for point in points
            if finite(point.value)
        ]
        return json_line(
            {
                "record": "telemetry",
                "time": rfc3339(at.wall_ns),
                "node": self._node,
                "metrics": metrics,
            }
        )

    def _line(self, snapshot: Snapshot, attribution: Attribution, found: _DeviceReadings) -> bytes:
        rendered = self._parts.get(attribution)
        if rendered is None:
            rendered = self._parts[attribution] = _render(attribution)
        return json_line(
            {
                "record": "device",
                "time": rfc3339(snapshot.at.wall_of(found.newest)),
                "node": self._node,
                "device": rendered.device,
                "readings": found.readings,
                "holders": [
                    orjson.Fragment(told + _since(snapshot, holder) + _age(snapshot, holder.source))
                    for holder, told in rendered.holders
                ],
                **({"conflicts": attribution.conflicts} if attribution.conflicts else {}),
            }
        )


def _render(attribution: Attribution) -> _Parts:
    return _Parts(
        orjson.Fragment(dump(json_objects.device(attribution.device))),
        # Left open at the end, for what moves with the clocks.
        [(holder, dump(_holder(holder))[:-1]) for holder in attribution.holders],
    )


def _since(snapshot: Snapshot, holder: Holder) -> bytes:
    """Return when a holding began, which moves with the wall clock when that is set."""
    since = rfc3339(snapshot.at.wall_of(holder.since)).encode()
    return b',"since":"%b","since_known":%b' % (
        since,
        b"false" if holder.since_observed else b"true",
    )


def _age(snapshot: Snapshot, source: str) -> bytes:
    """Close a holder, with the time since its source last stood by it."""
    state = snapshot.sources.get(source)
    if state is None or state.confirmed_at is None:
        return b"}"
    age_ns = snapshot.at.mono_ns - state.confirmed_at.mono_ns
    return b',"age_seconds":%.3f}' % (max(age_ns, 0) / NS)


def _holder(holder: Holder) -> dict[str, Any]:
    told = json_objects.container(holder.subject, holder.pod)
    if holder.share is not None and finite(holder.share):
        told["share"] = holder.share
    told["source"] = holder.source
    told["evidence"] = holder.evidence.name.lower()
    return told
