"""The sink `jsonl`, with or without a queue."""

import asyncio
import contextlib
import errno
from typing import Final, Self

from config.value_types import Duration
from pipeline.base.errors import TransientError
from pipeline.component.contracts import Sink, SinkContext, SinkInbox
from pipeline.component.warnings import warn
from pipeline.delivery.options import RetryOptions
from pipeline.delivery.queued_sink import QueuedSink
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.line_writer import LineWriter
from sinks.jsonl.options import Options
from sinks.jsonl.queued_lines import LinesPush
from sinks.jsonl.target import WriteFault

_RETRY: Final = RetryOptions(initial=Duration.parse("1s"), max=Duration.parse("10s"))
_MAX_LINE: Final = 16 << 20
"""Maximum size of a line in bytes; podgpu does not write longer ones."""

_EMITTED: Final = "podgpu_sink_emitted_total"
_DROPPED: Final = "podgpu_sink_dropped_total"
_SLOW_WRITE_S: Final = 10.0
"""Seconds after which a write that has not returned is logged."""


class JsonLinesSink(LineWriter):
    """Writes the lines of each snapshot, and drops and counts lines that can't be written.

    The writing thread has only one snapshot at a time. While a write hangs, the sink's inbox
    fills, and the runtime drops and counts the oldest snapshots in it.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        super().__init__(options, ctx)
        self._last_error = ""
        self._dropped = 0

    async def __aenter__(self) -> Self:
        """Open the target, and repair its end if podgpu was killed during a write."""
        self._ctx.meter.add(_EMITTED, 0)
        return await super().__aenter__()

    async def run(self, inbox: SinkInbox) -> None:
        """Write snapshots until the inbox ends."""
        async for snapshot in inbox:
            batch = self._encoder.encode(snapshot)
            if batch.lines:
                await self._write(batch)

    async def _write(self, batch: Batch) -> None:
        call = self.start_write(batch)
        written = asyncio.wrap_future(call)
        try:
            done, _ = await asyncio.wait({written}, timeout=_SLOW_WRITE_S)
            if not done:
                warn(self._ctx, "%s has accepted no data for %g s", self.name, _SLOW_WRITE_S)
                await asyncio.wait({written})
                self._ctx.log.info("%s accepts data again", self.name)
        except asyncio.CancelledError:
            written.cancel()  # the thread continues, but nothing waits for it
            if call.done() and not call.cancelled() and call.exception() is None:
                with contextlib.suppress(TransientError):
                    self._count_result(batch, call.result())
            else:
                self._ctx.meter.add(_DROPPED, sum(batch.readings), reason="stopped")
            raise
        self._count_result(batch, written.result())

    def _count_result(self, batch: Batch, fault: WriteFault | None) -> None:
        """Count the emitted and dropped readings of a batch.

        Raises:
            TransientError: no process reads the target any more.
        """
        self.log_failures()
        written = len(batch.lines) if fault is None else fault.lines
        self._ctx.meter.add(_EMITTED, sum(batch.readings[:written]))
        if fault is None:
            if self._last_error:
                text = "%s can be written again; %d readings were dropped"
                self._ctx.log.info(text, self.name, self._dropped)
                self._last_error, self._dropped = "", 0
            return
        lost = sum(batch.readings[written:])
        self._ctx.meter.add(_DROPPED, lost, reason=fault.reason)
        if fault.cause.errno == errno.EPIPE:
            raise TransientError(f"no process reads {self.name} any more: {fault}") from fault.cause
        self._dropped += lost
        self._ctx.meter.set_problem(f"cannot write {self.name}: {fault}", self._ctx.clock.now())
        if self._last_error != str(fault):
            self._last_error = str(fault)
            self._ctx.log.warning(
                "cannot write %s: %s%s; readings are dropped and counted until this works again",
                self.name,
                fault,
                fault.fix,
            )


def make_sink(options: Options, ctx: SinkContext) -> Sink:
    """Return a sink that drops lines that can't be written now, or one that queues them.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.
    """
    if options.queue is None:
        return JsonLinesSink(options, ctx)
    push = LinesPush(options, ctx)
    return QueuedSink(push, options.queue, _RETRY, ctx, kind="jsonl", most_bytes=_MAX_LINE)
