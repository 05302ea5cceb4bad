"""What a snapshot has to say, with podgpu's own metrics now and then."""

from typing import Final

from pipeline.contracts import SinkContext
from pipeline.model import Snapshot
from sinks.jsonl.lines import Batch, LineEncoder
from sinks.jsonl.options import Options

_DROPPED: Final = "podgpu_sink_dropped_total"


class SnapshotEncoder:
    """Makes the lines of snapshots, and counts what JSON can't say.

    Args:
        options: how often podgpu's own metrics come among the readings.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._every_ns = options.telemetry_interval.ns
        self._ctx = ctx
        self._lines = LineEncoder(ctx.node, ctx.plan)
        self._told_ns: int | None = None

    def encode(self, snapshot: Snapshot) -> Batch:
        """Return the lines of a snapshot; none when there is nothing to say."""
        batch = self._lines.devices(snapshot)
        now, told_ns = self._ctx.clock.now(), self._told_ns
        if self._every_ns and (told_ns is None or now.mono_ns - told_ns >= self._every_ns):
            self._told_ns = now.mono_ns
            batch.add(self._lines.telemetry(now, self._ctx.telemetry()), 0)
        if batch.not_finite:
            self._ctx.meter.add(_DROPPED, batch.not_finite, reason="not_finite")
        return batch
