"""Base of the sinks with and without a queue: an encoder, and a target with its own thread."""

import asyncio
import errno
import os
import select
import stat
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self, TypeAlias

from pipeline.base.errors import PermanentError, TransientError
from pipeline.component.contracts import SinkContext
from pipeline.component.warnings import warn
from pipeline.files.symlink_chain import untrusted_link
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.model import Instant
from sinks.jsonl.line_encoder import Batch, SnapshotEncoder
from sinks.jsonl.options import STDOUT, Options
from sinks.jsonl.rotating_file import RotatingFile
from sinks.jsonl.target import FailureLog, StreamTarget, WriteFault

Target: TypeAlias = RotatingFile | StreamTarget

_STDOUT_FD: Final = 1
UNTRUSTED_LINK: Final = "is a symbolic link that another user may have created"
UNTRUSTED_LINK_FIX: Final = (
    "set the path that it points to, or use a folder that only root or podgpu's user can write to"
)

_CLOSE_TIMEOUT_S: Final = 0.5
"""Maximum number of seconds that a stopping sink waits for the current write."""


class LineWriter:
    """Encodes snapshots, and writes lines in a thread, because a write blocks.

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

        If the option `fsync` is set, the target is flushed at that interval until it is closed.

        Raises:
            PermanentError: lines can't be written to a path of this type.
            TransientError: the target can't be opened now.
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
        """Start to write lines, after all earlier writes.

        The result of the future is None, or why not all lines were written.
        """
        if self._thread is None or self._target is None:
            raise RuntimeError("used outside of the sink's context")
        if self._flush_task is not None and self._flush_task.done():
            self._flush_task.result()  # raise the exception of a bug
        return self._thread.submit(self._target.write, batch, self._ctx.clock.now())

    async def _flush(self) -> None:
        """Flush at intervals. While a flush hangs, no other one is started."""
        while self._thread is not None and self._target is not None:
            await self._ctx.clock.sleep(self._options.fsync)
            call = self._thread.submit(self._target.sync, self._ctx.clock.now())
            await asyncio.wrap_future(call)
            self.log_failures()

    def log_failures(self) -> None:
        """Count and log failed compressions and flushes, which lose no line."""
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
            warn(self._ctx, "no longer waiting for %s: the last write does not return", self.name)


def open_target(options: Options, now: Instant, failures: FailureLog) -> Target:
    """Open a file or a stream, and repair the end of a file. Blocks.

    Args:
        options: see `docs/sinks/jsonl.md`.
        now: time of the start.
        failures: collects failures that lose no line.

    Raises:
        OSError: the target can't be opened now.
        PermanentError: lines can't be written to a path of this type.
    """
    if options.path == STDOUT:
        if _has_no_reader(_STDOUT_FD):
            raise OSError(errno.EPIPE, "no process reads it")
        return StreamTarget(_STDOUT_FD, owned=False)
    if link := untrusted_link(options.path):
        raise PermanentError(f"{options.path}: {link} {UNTRUSTED_LINK}; {UNTRUSTED_LINK_FIX}")
    # Rotation creates files next to the file itself, not next to a link to it.
    path = Path(os.path.realpath(options.path))
    if not path.parent.is_dir():
        raise PermanentError(
            f"{path.parent}, the folder of {options.path}, is not a folder or does not exist: "
            "create it (mkdir -p), or set another path"
        )
    try:
        # Use the path as configured: the resolved path of a pipe's descriptor does not exist.
        mode = Path(options.path).stat().st_mode
    except FileNotFoundError:
        return RotatingFile(path, options, now, failures)
    if stat.S_ISREG(mode):
        return RotatingFile(path, options, now, failures)
    if stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
        return StreamTarget(os.open(path, flags), owned=True)
    what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise PermanentError(
        f'{options.path} is {what}: set the path of a file, or "{STDOUT}" for standard output'
    )


def _has_no_reader(fd: int) -> bool:
    """Whether a descriptor is a pipe without a reader."""
    ready = select.poll()
    ready.register(fd, 0)
    return any(found & select.POLLERR for _, found in ready.poll(0))
