"""The sink `jsonl`."""

import asyncio
import contextlib
import errno
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pipeline.contracts import SinkContext, SinkInbox
from pipeline.errors import PermanentError, TransientError
from pipeline.model import Instant, Snapshot
from pipeline.threads import DaemonExecutor
from sinks.jsonl.files import FileTarget
from sinks.jsonl.lines import Batch, LineEncoder
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.target import StreamTarget, Target, UnwrittenError, abandoned
from sinks.jsonl.troubles import Troubles

_EMITTED: Final = "podgpu_sink_emitted_total"
_DROPPED: Final = "podgpu_sink_dropped_total"
_STDOUT_FD: Final = 1
_SLOW: Final = 10.0
"""Seconds after which a write that doesn't end is told of."""

_FLUSH: Final = 0.5
"""Seconds that a stopping sink waits for the write it is in."""


class JsonLinesSink:
    """Writes each snapshot's fresh readings, one line per device, in one piece.

    Only one snapshot at a time is in the writing thread's hands. While it can't be written, the
    sink's queue fills, and the runtime drops the oldest of it and counts.

    Args:
        options: see `docs/sinks/jsonl.md`.
        ctx: what the runtime lends.
    """

    def __init__(self, options: Options, ctx: SinkContext) -> None:
        self._options = options
        self._ctx = ctx
        self._encoder = LineEncoder(ctx.node, ctx.plan)
        self._name = "standard output" if options.path == STDOUT else options.path
        self._thread: DaemonExecutor | None = None
        self._target: Target | None = None
        self._told_ns: int | None = None
        self._fault = ""
        self._lost = 0
        self._troubles = Troubles()

    async def __aenter__(self) -> Self:
        """Open the file, and mend its end if podgpu was killed while it wrote there."""
        self._ctx.meter.add(_EMITTED, 0)
        thread = DaemonExecutor(f"podgpu-sink-{self._ctx.name}")
        loop, now = asyncio.get_running_loop(), self._ctx.clock.now()
        try:
            self._target = await loop.run_in_executor(
                thread, _open, self._options, now, self._troubles
            )
        except OSError as error:
            thread.shutdown()
            raise TransientError(f"cannot write {self._name}: {error.strerror or error}") from error
        except BaseException:
            thread.shutdown()
            raise
        self._thread = thread
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Close the file after what is being written, unless that takes too long."""
        thread, target = self._thread, self._target
        self._thread = self._target = None
        if thread is None or target is None:
            return
        thread.submit(target.close)
        idle = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        thread.shutdown()
        done, _ = await asyncio.wait({idle}, timeout=_FLUSH)
        self._tell()
        if not done:
            idle.cancel()
            self._ctx.log.warning("gave up on %s: the last write to it doesn't end", self._name)

    async def run(self, inbox: SinkInbox) -> None:
        """Write until the inbox ends."""
        flushing = asyncio.create_task(self._flush()) if self._options.fsync else None
        try:
            async for snapshot in inbox:
                if flushing is not None and flushing.done():
                    flushing.result()  # a bug is not to go unseen
                batch = self._encode(snapshot)
                if batch.not_finite:
                    self._ctx.meter.add(_DROPPED, batch.not_finite, reason="not_finite")
                if batch.lines:
                    await self._write(batch)
        finally:
            if flushing is not None:
                flushing.cancel()

    async def _flush(self) -> None:
        """Flush again and again; a call that doesn't end takes no second one."""
        while self._thread is not None and self._target is not None:
            await self._ctx.clock.sleep(self._options.fsync)
            call = self._thread.submit(self._target.sync, self._ctx.clock.now())
            await asyncio.wrap_future(call)
            self._tell()

    def _tell(self) -> None:
        self._troubles.tell(self._name, self._ctx.log, self._ctx.meter)

    def _encode(self, snapshot: Snapshot) -> Batch:
        batch = self._encoder.devices(snapshot)
        every_ns, now = self._options.telemetry_interval.ns, self._ctx.clock.now()
        told_ns = self._told_ns
        if every_ns and (told_ns is None or now.mono_ns - told_ns >= every_ns):
            self._told_ns = now.mono_ns
            batch.add(self._encoder.telemetry(now, self._ctx.telemetry()), 0)
        return batch

    async def _write(self, batch: Batch) -> None:
        if self._thread is None or self._target is None:
            raise RuntimeError("run() outside of the sink's context")
        call = self._thread.submit(_fault, self._target, batch, self._ctx.clock.now())
        written = asyncio.wrap_future(call)
        try:
            done, _ = await asyncio.wait({written}, timeout=_SLOW)
            if not done:
                self._ctx.log.warning("%s has taken nothing for %g s", self._name, _SLOW)
                await asyncio.wait({written})
                self._ctx.log.info("%s takes lines again", self._name)
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
        self._tell()
        if fault is None:
            self._ctx.meter.add(_EMITTED, sum(batch.readings))
            self._worked()
        else:
            self._ctx.meter.add(_EMITTED, sum(batch.readings[: fault.lines]))
            self._failed(fault, sum(batch.readings[fault.lines :]))

    def _failed(self, error: UnwrittenError, lost: int) -> None:
        self._ctx.meter.add(_DROPPED, lost, reason=error.reason)
        text = error.cause.strerror or str(error.cause)
        if error.cause.errno == errno.EPIPE:
            raise TransientError(f"nobody reads {self._name} any more: {text}") from error
        self._lost += lost
        if self._fault != text:
            self._fault = text
            self._ctx.log.warning(
                "cannot write %s: %s%s; readings are dropped and counted until it can be written",
                self._name,
                text,
                _mend(error.cause),
            )

    def _worked(self) -> None:
        if self._fault:
            self._ctx.log.info(
                "%s can be written again; %d readings were dropped", self._name, self._lost
            )
            self._fault, self._lost = "", 0


def _fault(target: Target, batch: Batch, now: Instant) -> UnwrittenError | None:
    try:
        target.write(batch, now)
    except UnwrittenError as error:
        return error
    return None


def _open(options: Options, now: Instant, troubles: Troubles) -> Target:
    if options.path == STDOUT:
        if abandoned(_STDOUT_FD):
            raise OSError(errno.EPIPE, "nobody reads it")
        return StreamTarget(_STDOUT_FD, owned=False)
    # Rotation belongs beside the file itself, not beside a link to it.
    path = Path(os.path.realpath(options.path))
    if not path.parent.is_dir():
        raise PermanentError(
            f"the folder {path.parent} of {options.path} isn't there: make it (mkdir -p), "
            "or give another path"
        )
    try:
        # Not the path that was worked out: the descriptor of a pipe leads to no real one.
        mode = Path(options.path).stat().st_mode
    except FileNotFoundError:
        return FileTarget(path, options, now, troubles)
    if stat.S_ISREG(mode):
        return FileTarget(path, options, now, troubles)
    if stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
        return StreamTarget(os.open(path, flags), owned=True)
    what = "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
    raise PermanentError(
        f'{options.path} is {what}: give the path of a file, or "{STDOUT}" for standard output'
    )


def _mend(cause: OSError) -> str:
    if cause.errno == errno.EBUSY:
        return " (a file that is mounted by itself can't be rotated: set max_size to 0B)"
    return ""
