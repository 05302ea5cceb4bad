"""The sink `jsonl`, as it is without a queue of its own."""

import asyncio
import contextlib
import errno
from types import TracebackType
from typing import Final, Self

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SinkContext, SinkInbox
from pipeline.component.warnings import warn
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.options import Options
from sinks.jsonl.snapshot_encoder import SnapshotEncoder
from sinks.jsonl.target import UnwrittenError
from sinks.jsonl.target_factory import fix_for
from sinks.jsonl.target_thread import TargetThread

_EMITTED: Final = "podgpu_sink_emitted_total"
_DROPPED: Final = "podgpu_sink_dropped_total"
_SLOW: Final = 10.0
"""Seconds after which a write that doesn't end is told of."""


class JsonLinesSink:
    """Writes each snapshot's fresh readings, one line per device, in one piece.

    Only one snapshot at a time is in the writing thread's hands. While it can't be written, the
    sink's queue fills, and the runtime drops the oldest of it and counts.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._encoder = SnapshotEncoder(options, ctx)
        self._held = TargetThread(options, ctx)
        self._fault = ""
        self._lost = 0

    async def __aenter__(self) -> Self:
        """Open the file, and mend its end if podgpu was killed while it wrote there."""
        self._ctx.meter.add(_EMITTED, 0)
        await self._held.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the file after what is being written, unless that takes too long."""
        await self._held.close()

    async def run(self, inbox: SinkInbox) -> None:
        """Write until the inbox ends."""
        self._held.keep_flushing()
        try:
            async for snapshot in inbox:
                self._held.check()
                batch = self._encoder.encode(snapshot)
                if batch.lines:
                    await self._write(batch)
        finally:
            self._held.stop_flushing()

    async def _write(self, batch: Batch) -> None:
        call = self._held.write(batch)
        written = asyncio.wrap_future(call)
        try:
            done, _ = await asyncio.wait({written}, timeout=_SLOW)
            if not done:
                warn(self._ctx, "%s has taken nothing for %g s", self._held.name, _SLOW)
                await asyncio.wait({written})
                self._ctx.log.info("%s takes lines again", self._held.name)
        except asyncio.CancelledError:
            written.cancel()  # the thread goes on with it, but nobody waits any more
            if call.done() and not call.cancelled() and call.exception() is None:
                with contextlib.suppress(TransientError):
                    self._settle(batch, call.result())
            else:
                self._ctx.meter.add(_DROPPED, sum(batch.readings), reason="stopped")
            raise
        self._settle(batch, written.result())

    def _settle(self, batch: Batch, fault: UnwrittenError | None) -> None:
        """Count what became of a batch."""
        self._held.log_failures()
        if fault is None:
            self._ctx.meter.add(_EMITTED, sum(batch.readings))
            self._worked()
        else:
            self._ctx.meter.add(_EMITTED, sum(batch.readings[: fault.lines]))
            self._failed(fault, sum(batch.readings[fault.lines :]))

    def _failed(self, error: UnwrittenError, lost: int) -> None:
        self._ctx.meter.add(_DROPPED, lost, reason=error.reason)
        name, text = self._held.name, error.cause.strerror or str(error.cause)
        if error.cause.errno == errno.EPIPE:
            raise TransientError(f"nobody reads {name} any more: {text}") from error
        self._lost += lost
        self._ctx.meter.set_problem(f"cannot write {name}: {text}", self._ctx.clock.now())
        if self._fault != text:
            self._fault = text
            self._ctx.log.warning(
                "cannot write %s: %s%s; readings are dropped and counted until it can be written",
                name,
                text,
                fix_for(error.cause),
            )

    def _worked(self) -> None:
        if self._fault:
            self._ctx.log.info(
                "%s can be written again; %d readings were dropped", self._held.name, self._lost
            )
            self._fault, self._lost = "", 0
