"""What both sinks have in common: the encoder, and a target with its own thread."""

import asyncio
from concurrent.futures import Future
from typing import Final, Self

from pipeline.base.errors import TransientError
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.host.daemon_threads import DaemonExecutor
from sinks.jsonl.line_encoder import Batch, SnapshotEncoder
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.target import FailureLog, WriteFault
from sinks.jsonl.target_factory import Target, open_target

_CLOSE_TIMEOUT_S: Final = 0.5
"""Maximum number of seconds that a stopping sink waits for the current write."""


class LineWriter:
    """Encodes snapshots, and writes lines in a thread, because writing blocks.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: context of the sink, from the runtime.

    Attributes:
        name: name of the target for messages.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self.name = "standard output" if options.path == STDOUT else options.path
        self._options = options
        self._ctx = ctx
        self._encoder = SnapshotEncoder(options, ctx)
        self._failures = FailureLog()
        self._thread: DaemonExecutor | None = None
        self._target: Target | None = None
        self._flush_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the target, and repair its end if podgpu was killed during a write.

        If configured, it is flushed at intervals until it is closed.

        Raises:
            PermanentError: lines can't be written to a path of this type.
            TransientError: it can't be opened now.
        """
        thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
        loop, now = asyncio.get_running_loop(), self._ctx.clock.now()
        try:
            self._target = await loop.run_in_executor(
                thread, open_target, self._options, now, self._failures
            )
        except BaseException as error:
            thread.shutdown()
            if isinstance(error, OSError):
                text = f"cannot write {self.name}: {error.strerror or error}"
                raise TransientError(text) from error
            raise
        self._thread = thread
        if self._options.fsync:
            self._flush_task = asyncio.create_task(self._flush())
        return self

    def start_write(self, batch: Batch) -> "Future[WriteFault | None]":
        """Start to write lines, after all earlier writes; the result is the error, if any."""
        if self._thread is None or self._target is None:
            raise RuntimeError("used outside of the sink's context")
        if self._flush_task is not None and self._flush_task.done():
            self._flush_task.result()  # raise the exception of a bug
        return self._thread.submit(self._target.write, batch, self._ctx.clock.now())

    async def _flush(self) -> None:
        """Flush at intervals; a call that does not return is not repeated."""
        while self._thread is not None and self._target is not None:
            await self._ctx.clock.sleep(self._options.fsync)
            call = self._thread.submit(self._target.sync, self._ctx.clock.now())
            await asyncio.wrap_future(call)
            self.log_failures()

    def log_failures(self) -> None:
        """Count and log failures that lost no line."""
        self._failures.log_new(self.name, self._ctx.log, self._ctx.meter, self._ctx.clock.now())

    async def __aexit__(self, *_: object) -> None:
        """Close the target after the current write, unless that takes too long."""
        if self._flush_task is not None:
            self._flush_task.cancel()
            self._flush_task = None
        thread, target = self._thread, self._target
        self._thread = self._target = None
        if thread is None or target is None:
            return
        thread.submit(target.close)
        idle = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        thread.shutdown()
        done, _pending = await asyncio.wait({idle}, timeout=_CLOSE_TIMEOUT_S)
        self.log_failures()
        if not done:
            idle.cancel()
            warn(self._ctx, "gave up on %s: the last write does not return", self.name)
