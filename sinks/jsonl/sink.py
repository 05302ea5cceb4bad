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
from sinks.jsonl.line_encoder import Batch, SnapshotEncoder
from sinks.jsonl.options import Options
from sinks.jsonl.queued_lines import LinesPush
from sinks.jsonl.target import WriteFault
from sinks.jsonl.target_thread import TargetThread

_RETRY: Final = RetryOptions(initial=Duration.parse("1s"), max=Duration.parse("10s"))
_MAX_LINE: Final = 16 << 20
"""Maximum size of a line in bytes; podgpu does not write longer ones."""

_EMITTED: Final = "podgpu_sink_emitted_total"
_DROPPED: Final = "podgpu_sink_dropped_total"
_SLOW_WRITE_S: Final = 10.0
"""Seconds after which a write that has not returned is logged."""


class JsonLinesSink:
    """Writes the fresh readings of each snapshot, one line per device.

    The writing thread has only one snapshot at a time. While it can't be written, the sink's inbox
    fills, and the runtime drops and counts the oldest snapshots in it.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._encoder = SnapshotEncoder(options, ctx)
        self._target_thread = TargetThread(options, ctx)
        self._last_error = ""
        self._dropped = 0

    async def __aenter__(self) -> Self:
        """Open the file, and repair its end if podgpu was killed during a write."""
        self._ctx.meter.add(_EMITTED, 0)
        await self._target_thread.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the file after the current write, unless that takes too long."""
        await self._target_thread.close()

    async def run(self, inbox: SinkInbox) -> None:
        """Write snapshots until the inbox ends."""
        async for snapshot in inbox:
            batch = self._encoder.encode(snapshot)
            if batch.lines:
                await self._write(batch)

    async def _write(self, batch: Batch) -> None:
        call = self._target_thread.write(batch)
        written = asyncio.wrap_future(call)
        try:
            done, _ = await asyncio.wait({written}, timeout=_SLOW_WRITE_S)
            if not done:
                warn(
                    self._ctx,
                    "%s has accepted no data for %g s",
                    self._target_thread.name,
                    _SLOW_WRITE_S,
                )
                await asyncio.wait({written})
                self._ctx.log.info("%s accepts data again", self._target_thread.name)
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
        """Count the emitted and dropped readings of a batch."""
        self._target_thread.log_failures()
        if fault is None:
            self._ctx.meter.add(_EMITTED, sum(batch.readings))
            self._on_success()
        else:
            self._ctx.meter.add(_EMITTED, sum(batch.readings[: fault.lines]))
            self._on_failure(fault, sum(batch.readings[fault.lines :]))

    def _on_failure(self, error: WriteFault, lost: int) -> None:
        self._ctx.meter.add(_DROPPED, lost, reason=error.reason)
        name, text = self._target_thread.name, str(error)
        if error.cause.errno == errno.EPIPE:
            raise TransientError(f"no process reads {name} any more: {text}") from error.cause
        self._dropped += lost
        self._ctx.meter.set_problem(f"cannot write {name}: {text}", self._ctx.clock.now())
        if self._last_error != text:
            self._last_error = text
            self._ctx.log.warning(
                "cannot write %s: %s%s; readings are dropped and counted until this works again",
                name,
                text,
                error.fix,
            )

    def _on_success(self) -> None:
        if self._last_error:
            self._ctx.log.info(
                "%s can be written again; %d readings were dropped",
                self._target_thread.name,
                self._dropped,
            )
            self._last_error, self._dropped = "", 0


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
