"""Targets to which lines are written, and their failures. A write blocks the sink's thread."""

import errno
import logging
import os
import select
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pipeline.base.telemetry import Meter
from pipeline.files.disk_sync import REASONS
from pipeline.model import Instant
from sinks.jsonl.line_encoder import Batch

_REASONS: Final = {**REASONS, errno.EPIPE: "closed_pipe"}
"""Label values for the causes of errors."""


@dataclass(frozen=True)
class WriteFault:
    """Why a batch was not written, or only a part of it.

    Attributes:
        lines: number of lines of the batch that were written.
        cause: why the other lines were not written.
    """

    lines: int
    cause: OSError

    def __str__(self) -> str:
        return self.cause.strerror or str(self.cause)

    @property
    def reason(self) -> str:
        """The cause as a label value."""
        return _REASONS.get(self.cause.errno or 0, "write_error")

    @property
    def fix(self) -> str:
        """What to do about the error, in brackets; empty if there is no special advice."""
        if self.cause.errno == errno.EBUSY:
            return " (a file that is a mount point can't be rotated: set max_size to 0B)"
        return ""


class StreamTarget:
    """Standard output or a device file, where written bytes can't be removed again.

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

    def write(self, batch: Batch, now: Instant) -> WriteFault | None:  # noqa: ARG002
        """Write all lines, after the rest of an incomplete line; return why not all were written.

        A line that was written in part is completed before the next line.
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
                return WriteFault(lines, cause)
        return None

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


Operation: TypeAlias = Literal["compress", "fsync"]

_ERRORS: Final = "podgpu_sink_errors_total"
_FAILURES: Final = {
    "compress": "cannot compress a rotated file of %s: %s; it stays uncompressed, and podgpu "
    "tries again at the next rotation",
    "fsync": "cannot flush %s to the disk: %s; lines may be missing from that file after a "
    "power failure, so podgpu starts a new file",
}
_RECOVERIES: Final = {
    "compress": "rotated files of %s are compressed again",
    "fsync": "%s is flushed to the disk again",
}


class FailureLog:
    """Collects failures and successes of threads until the sink logs them.

    The sink logs them after each write, so only a few wait.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Operation, OSError | None]] = deque()
        self._logged: dict[Operation, str] = {}

    def record(self, what: Operation, cause: OSError | None = None) -> None:
        """Record a failure; without a cause, record a success. Thread-safe."""
        self._pending.append((what, cause))

    def log_new(self, name: str, log: logging.Logger, meter: Meter, now: Instant) -> None:
        """Count all recorded failures. Log a failure only if its text differs from the last one."""
        while self._pending:
            what, cause = self._pending.popleft()
            if cause is None:
                if self._logged.pop(what, None) is not None:
                    log.info(_RECOVERIES[what], name)
                continue
            meter.add(_ERRORS, operation=what, reason=_REASONS.get(cause.errno or 0, "other"))
            text = cause.strerror or str(cause)
            meter.set_problem(_FAILURES[what] % (name, text), now)
            if self._logged.get(what) != text:
                self._logged[what] = text
                log.warning(_FAILURES[what], name, text)
