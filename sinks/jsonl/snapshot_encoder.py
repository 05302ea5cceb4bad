"""What a snapshot has to say, with podgpu's own metrics now and then."""

from typing import Final

from pipeline.changes.change_feed import ChangeTracker
from pipeline.component.contracts import SinkContext
from pipeline.model import Snapshot
from sinks.jsonl.event_lines import EventLines
from sinks.jsonl.line_encoder import Batch, LineEncoder
from sinks.jsonl.options import Options

_DROPPED: Final = "podgpu_sink_dropped_total"


class SnapshotEncoder:
    """Makes the lines of snapshots, and counts what JSON can't say.

    Args:
        options: which lines there are, and how often podgpu's own metrics come among them.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._every_ns = options.telemetry_interval.ns
        self._kinds = frozenset(options.lines)
        self._ctx = ctx
        self._lines = LineEncoder(ctx.node, ctx.plan)
        self._events = EventLines(ctx.node)
        self._following = ChangeTracker(ctx.restart_state, ctx.latest())
        self._reported_ns: int | None = None

    def encode(self, snapshot: Snapshot) -> Batch:
        """Return the lines of a snapshot; none when there is nothing to say."""
        batch = self._lines.devices(snapshot) if "readings" in self._kinds else Batch()
        if batch.not_finite:
            self._ctx.meter.add(_DROPPED, batch.not_finite, reason="not_finite")
        self._add_events(snapshot, batch)
        now, told_ns = self._ctx.clock.now(), self._reported_ns
        if self._every_ns and (told_ns is None or now.mono_ns - told_ns >= self._every_ns):
            self._reported_ns = now.mono_ns
            batch.add(self._lines.telemetry(now, self._ctx.telemetry()), 0)
        return batch

    def _add_events(self, snapshot: Snapshot, batch: Batch) -> None:
        """Add what has happened, each as one reading."""
        # Looked at whatever is wanted: what isn't told now isn't told later.
        news = self._following.update(snapshot)
        if "holdings" in self._kinds:
            for holding in news.holdings:
                batch.add(self._events.holding(holding, snapshot), 1)
            self._missed(news.missed_holdings)
        if "xids" in self._kinds:
            for one in news.errors:
                batch.add(self._events.error(one, snapshot), 1)
            self._missed(news.missed_errors)

    def _missed(self, count: int) -> None:
        if count:
            self._ctx.meter.add(_DROPPED, count, reason="missed")
