"""Encode snapshots as JSON lines, with podgpu's own metrics at intervals."""

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.base.telemetry import FamilyPoints
from pipeline.changes.unreported_changes import ChangeTracker
from pipeline.component.contracts import SinkContext
from pipeline.fields import CATALOGUE, FieldPlan
from pipeline.model import Attribution, Holder, Instant, Snapshot
from sinks.jsonl.event_lines import error_line, holding_line
from sinks.jsonl.json_values import container_object, device_object, finite, json_line, rfc3339
from sinks.jsonl.options import Options

PREFIX: Final = b'{"record":"'
"""The beginning of every line that podgpu writes."""

_DROPPED: Final = "podgpu_sink_dropped_total"

_WITH_ATTRIBUTES: Final = frozenset(known.name for known in CATALOGUE if known.attrs)
"""Fields with attributes. Their readings are always a list, even a single one."""


@dataclass(slots=True)
class Batch:
    """Lines that are written together.

    Attributes:
        lines: the lines, each with a newline.
        readings: number of readings in each line.
        not_finite: number of readings that are left out because JSON can't represent them.
    """

    lines: list[bytes] = field(default_factory=list)
    readings: list[int] = field(default_factory=list)
    not_finite: int = 0

    def add(self, line: bytes, readings: int) -> None:
        """Add a line."""
        self.lines.append(line)
        self.readings.append(readings)

    def whole(self, written: int) -> tuple[int, int]:
        """Return how many lines are complete in the first `written` bytes, and their size.

        The size is in bytes.
        """
        ends = [0, *itertools.accumulate(map(len, self.lines))]
        count = bisect.bisect_right(ends, max(written, 0)) - 1
        return count, ends[count]


@dataclass(slots=True)
class _DeviceReadings:
    """The fresh readings of a device."""

    newest: Instant
    count: int = 0
    readings: dict[str, Any] = field(default_factory=dict)


class LineEncoder:
    """Encodes the readings of snapshots, and podgpu's own metrics.

    Args:
        node: the node's name.
        plan: the fields to write.
    """

    def __init__(self, node: str, plan: FieldPlan) -> None:
        self._node = node
        self._names = frozenset(known.name for known in plan.fields)

    def devices(self, snapshot: Snapshot) -> Batch:
        """Return a line for each device with fresh readings."""
        batch = Batch()
        by_device: dict[str, _DeviceReadings] = {}
        series, readings, names = snapshot.layout.series, snapshot.readings, self._names
        for position in snapshot.fresh:
            name, attrs = series[position].field, series[position].attrs
            if name not in names:
                continue
            reading = readings[position]
            value = reading.value
            if not finite(value):
                batch.not_finite += 1
                continue
            device = by_device.get(reading.device)
            if device is None:
                device = by_device[reading.device] = _DeviceReadings(reading.at)
            device.count += 1
            if reading.at.mono_ns > device.newest.mono_ns:
                device.newest = reading.at
            by_field = device.readings
            if attrs or name in _WITH_ATTRIBUTES:
                entries = by_field.setdefault(name, [])
                if type(entries) is not list:  # only one of two readings has attributes
                    entries = by_field[name] = [{"value": entries}]
                entries.append({**dict(attrs), "value": value})
            else:
                by_field[name] = value
        for uuid, attribution in snapshot.layout.attributions.items():
            device = by_device.get(uuid)
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
        return json_line(
            {
                "record": "device",
                "time": rfc3339(snapshot.at.wall_of(found.newest)),
                "node": self._node,
                "device": device_object(attribution.device),
                "readings": found.readings,
                "holders": [_holder(snapshot, holder) for holder in attribution.holders],
                "conflicts": attribution.conflicts or None,
            }
        )


class SnapshotEncoder:
    """Encodes snapshots and events, with podgpu's own metrics at intervals.

    Counts readings that JSON can't represent, and events that were missed.

    Args:
        options: which lines to write, and how often to write podgpu's own metrics.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._telemetry_interval_ns = options.telemetry_interval.ns
        self._kinds = frozenset(options.lines)
        self._ctx = ctx
        self._lines = LineEncoder(ctx.node, ctx.plan)
        self._changes = ChangeTracker(ctx.restart_state, ctx.latest())
        self._telemetry_ns: int | None = None

    def encode(self, snapshot: Snapshot) -> Batch:
        """Return the lines of a snapshot; there may be none."""
        batch = self._lines.devices(snapshot) if "readings" in self._kinds else Batch()
        if batch.not_finite:
            self._ctx.meter.add(_DROPPED, batch.not_finite, reason="not_finite")
        self._add_events(snapshot, batch)
        now, last_ns = self._ctx.clock.now(), self._telemetry_ns
        if self._telemetry_interval_ns and (
            last_ns is None or now.mono_ns - last_ns >= self._telemetry_interval_ns
        ):
            self._telemetry_ns = now.mono_ns
            batch.add(self._lines.telemetry(now, self._ctx.telemetry()), 0)
        return batch

    def _add_events(self, snapshot: Snapshot, batch: Batch) -> None:
        """Add a line for each event. Each counts as one reading."""
        # Update the tracker even if events are disabled, so that it never reports old ones.
        changes, missed = self._changes.update(snapshot), 0
        if "holdings" in self._kinds:
            for holding in changes.holdings:
                batch.add(holding_line(self._ctx.node, holding, snapshot), 1)
            missed += changes.missed_holdings
        if "xids" in self._kinds:
            for change in changes.errors:
                batch.add(error_line(self._ctx.node, change, snapshot), 1)
            missed += changes.missed_errors
        if missed:
            self._ctx.meter.add(_DROPPED, missed, reason="missed")


def _holder(snapshot: Snapshot, holder: Holder) -> dict[str, Any]:
    fields = container_object(holder.subject, holder.pod)
    if holder.share is not None and finite(holder.share):
        fields["share"] = holder.share
    fields |= {
        "source": holder.source,
        "evidence": holder.evidence.name.lower(),
        "since": rfc3339(snapshot.at.wall_of(holder.since)),
        "since_known": not holder.since_observed,
    }
    state = snapshot.sources.get(holder.source)
    if state is not None and state.confirmed_at is not None:
        age = max(state.confirmed_at.seconds_until(snapshot.at), 0.0)
        fields["age_seconds"] = round(age, 3)
    return fields
