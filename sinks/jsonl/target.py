"""Targets that lines are written to. All functions block and run in the sink's thread."""

import errno
import os
import select
import threading
from typing import Final

from pipeline.files.disk_sync import REASONS
from pipeline.model import Instant
from sinks.jsonl.line_encoder import Batch

_REASONS: Final = {**REASONS, errno.EPIPE: "closed_pipe"}


def reason_of(cause: OSError, other: str = "other") -> str:
    """Return a label value for the cause of an error."""
    return _REASONS.get(cause.errno or 0, other)


class UnwrittenError(Exception):
    """A batch could not be written, or only a part of it.

    Attributes:
        lines: number of its lines that were written.
        cause: why the others were not.
    """

    def __init__(self, lines: int, cause: OSError) -> None:
        super().__init__(cause.strerror or str(cause))
        self.lines = lines
        self.cause = cause

    @property
    def reason(self) -> str:
        """The cause as a label value."""
        return reason_of(self.cause, "write_error")

    @property
    def fix(self) -> str:
        """A fix in brackets for errors that need one; else an empty text."""
        if self.cause.errno == errno.EBUSY:
            return " (a file that is a mount point can't be rotated: set max_size to 0B)"
        return ""


class StreamTarget:
    """Standard output or a device file, where nothing can be taken back.

    Args:
        fd: file descriptor to write to.
        owned: whether to close it.
    """

    # The thread of a replaced sink may still block in the middle of a line.
    _write_lock = threading.Lock()

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned
        self._pending = b""

    def write(self, batch: Batch, now: Instant) -> None:  # noqa: ARG002
        """Write all lines, after the rest of an incomplete line.

        Raises:
            UnwrittenError: not all could be written. If a line was written in part, it is completed
                before the next line.
        """
        data = b"".join([self._pending, *batch.lines])
        pending_size, self._pending, written = len(self._pending), b"", 0
        with self._write_lock:
            try:
                while written < len(data):
                    written += self._write(memoryview(data)[written:])
            except OSError as cause:
                lines, end = batch.whole(written - pending_size)
                if written < pending_size:
                    self._pending = data[written:pending_size]
                elif end < written - pending_size:
                    # The line has begun. It will be completed, so it counts as written.
                    self._pending = data[written : pending_size + end + len(batch.lines[lines])]
                    lines += 1
                raise UnwrittenError(lines, cause) from cause

    def _write(self, data: memoryview) -> int:
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                # Another process that shares the stream has made it non-blocking.
                waiting = select.poll()
                waiting.register(self._fd, select.POLLOUT)
                waiting.poll()

    def sync(self, now: Instant) -> None:
        """Do nothing: there is no disk to flush."""

    def close(self) -> None:
        """Close the descriptor, if this target owns it."""
        if self._owned:
            os.close(self._fd)
