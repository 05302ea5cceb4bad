"""What a sink writes to, in a thread of its own."""

import asyncio
from concurrent.futures import Future
from typing import Final

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.model import Instant
from sinks.jsonl.fault_reports import FailureLog
from sinks.jsonl.line_encoder import Batch
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.target import Target, UnwrittenError
from sinks.jsonl.target_factory import open_target

_FLUSH: Final = 0.5
"""Seconds that a stopping sink waits for the write it is in."""


class TargetThread:
    """An open target and its thread.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: what the runtime lends.

    Attributes:
        name: what people call the target.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self.name = "standard output" if options.path == STDOUT else options.path
        self._options = options
        self._ctx = ctx
        self._troubles = FailureLog()
        self._thread: DaemonExecutor | None = None
        self._target: Target | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the target, and mend its end if podgpu was killed while it wrote there.

        Raises:
            PermanentError: it is nothing that lines can be written to.
            TransientError: it can't be opened now.
        """
        thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
        loop, now = asyncio.get_running_loop(), self._ctx.clock.now()
        try:
            self._target = await loop.run_in_executor(
                thread, open_target, self._options, now, self._troubles
            )
        except OSError as error:
            thread.shutdown()
            raise TransientError(f"cannot write {self.name}: {error.strerror or error}") from error
        except BaseException:
            thread.shutdown()
            raise
        self._thread = thread

    def write(self, batch: Batch) -> "Future[UnwrittenError | None]":
        """Begin to write lines, after all that was begun before; returns what went wrong."""
        if self._thread is None or self._target is None:
            raise RuntimeError("used outside of the sink's context")
        return self._thread.submit(_fault, self._target, batch, self._ctx.clock.now())

    def keep_flushing(self) -> None:
        """Flush again and again from now on, if that is asked for."""
        if self._options.fsync:
            self._flushing = asyncio.create_task(self._flush())

    def check(self) -> None:
        """Let a bug in flushing go its way."""
        if self._flushing is not None and self._flushing.done():
            self._flushing.result()

    def stop_flushing(self) -> None:
        """Flush no more but once, when it is closed."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    async def _flush(self) -> None:
        """Flush again and again; a call that doesn't end takes no second one."""
        while self._thread is not None and self._target is not None:
            await self._ctx.clock.sleep(self._options.fsync)
            call = self._thread.submit(self._target.sync, self._ctx.clock.now())
            await asyncio.wrap_future(call)
            self.log_failures()

    def log_failures(self) -> None:
        """Count and log what went wrong though no line was lost."""
        self._troubles.log_new(self.name, self._ctx.log, self._ctx.meter, self._ctx.clock.now())

    async def close(self) -> None:
        """Close the target after what is being written, unless that takes too long."""
        thread, target = self._thread, self._target
        self._thread = self._target = None
        if thread is None or target is None:
            return
        thread.submit(target.close)
        idle = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        thread.shutdown()
        done, _ = await asyncio.wait({idle}, timeout=_FLUSH)
        self.log_failures()
        if not done:
            idle.cancel()
            warn(self._ctx, "gave up on %s: the last write to it doesn't end", self.name)


def _fault(target: Target, batch: Batch, now: Instant) -> UnwrittenError | None:
    try:
        target.write(batch, now)
    except UnwrittenError as error:
        return error
    return None
