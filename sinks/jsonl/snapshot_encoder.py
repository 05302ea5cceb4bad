"""Encode snapshots as lines, with podgpu's own metrics at intervals."""

from typing import Final

from pipeline.changes.change_feed import ChangeTracker
from pipeline.component.contracts import SinkContext
from pipeline.model import Snapshot
from sinks.jsonl.event_lines import error_line, holding_line
from sinks.jsonl.line_encoder import Batch, LineEncoder
from sinks.jsonl.options import Options

_DROPPED: Final = "podgpu_sink_dropped_total"


class SnapshotEncoder:
    """Encodes snapshots, and counts values that JSON can't represent.

    Args:
        options: which lines to write, and how often podgpu's own metrics.
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
        """Return the lines of a snapshot; may be empty."""
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
        """Add a line for each event; it counts as one reading."""
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
