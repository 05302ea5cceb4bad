"""Where lines go. Everything here blocks and runs in the sink's own thread."""

import errno
import os
import select
import threading
from types import MappingProxyType
from typing import Final, Protocol

from pipeline.files.disk_sync import REASONS
from pipeline.model import Instant
from sinks.jsonl.line_encoder import Batch

_REASONS: Final = MappingProxyType({**REASONS, errno.EPIPE: "closed_pipe"})


def reason_of(cause: OSError, other: str = "other") -> str:
    """Return what the system said in a word, for a label."""
    return _REASONS.get(cause.errno or 0, other)


class UnwrittenError(Exception):
    """A batch could not be written, or not all of it.

    Attributes:
        lines: how many of its lines were written all the same.
        cause: why the others weren't.
    """

    def __init__(self, lines: int, cause: OSError) -> None:
        super().__init__(str(cause))
        self.lines = lines
        self.cause = cause

    @property
    def reason(self) -> str:
        """The cause in a word, for a label."""
        return reason_of(self.cause, "write_error")


class Target(Protocol):
    """A file, or something like one."""

    def write(self, batch: Batch, now: Instant) -> None:
        """Write all lines.

        Raises:
            UnwrittenError: not all could be written. A line of which a part was written is cut off
                or completed, at the latest before the next one.
        """
        ...

    def sync(self, now: Instant) -> None:
        """Let what was written outlive a power cut, if that is asked for."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class StreamTarget:
    """Standard output or a device file: what was written stays written.

    Args:
        fd: where to write.
        owned: whether to close it.
    """

    # An earlier sink's thread may still wait in the middle of a line for somebody to read.
    _one_at_a_time = threading.Lock()

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned
        self._rest = b""

    def write(self, batch: Batch, now: Instant) -> None:  # noqa: ARG002
        """Write all lines, after the rest of a line that was begun."""
        data = b"".join([self._rest, *batch.lines])
        ahead, self._rest, written = len(self._rest), b"", 0
        with self._one_at_a_time:
            try:
                while written < len(data):
                    written += self._write(memoryview(data)[written:])
            except OSError as cause:
                if written < ahead:
                    self._rest = data[written:ahead]
                    raise UnwrittenError(0, cause) from cause
                lines, border = batch.whole(written - ahead)
                if border < written - ahead:
                    # Begun: it will be completed, so it counts as written.
                    lines += 1
                    self._rest = data[written : ahead + batch.size(lines)]
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
        """Do nothing: there is no disk, or none that is ours."""

    def close(self) -> None:
        """Close what was opened for this target alone."""
        if self._owned:
            os.close(self._fd)


def abandoned(fd: int) -> bool:
    """Whether this is a pipe that nobody will ever read."""
    ready = select.poll()
    ready.register(fd, 0)
    return any(found & select.POLLERR for _, found in ready.poll(0))
