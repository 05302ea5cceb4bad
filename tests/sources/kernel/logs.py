"""A kernel log for tests: a pipe in packet mode returns one record per read, like `/dev/kmsg`."""

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from functools import cache
from itertools import count
from pathlib import Path

KERN, USER = 0, 1
"""Facilities."""


def record(number: int, stamp_us: int, text: str, *, facility: int = KERN, level: int = 3) -> bytes:
    """Return a record in the format of `/dev/kmsg`, with properties after the message."""
    head = f"{facility * 8 + level},{number},{stamp_us},-"
    return f"{head};{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n".encode()


class Kmsg:
    """A replacement for the device `/dev/kmsg`.

    Args:
        path: where the pipe is created.

    Attributes:
        stamp_us: the timestamp of the next record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp_us = 1_000_000
        os.mkfifo(path)
        # Opened for reading too, so that it stays open while no reader has it open.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 1 << 20)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)
        self._numbers = count()

    def write(self, text: str, *, facility: int = KERN, skip: int = 0) -> int:
        """Write a record after `skip` lost ones, and return its number."""
        for _ in range(skip):
            next(self._numbers)
        number = next(self._numbers)
        self.write_raw(record(number, self.stamp_us, text, facility=facility))
        return number

    def write_raw(self, data: bytes) -> None:
        os.write(self._fd, data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def xid(code: int = 79, bus: str = "PCI:0000:3b:00", rest: str = ", pid=1234, name=python") -> str:
    """Return a line of the driver about an XID error."""
    return f"NVRM: Xid ({bus}): {code}{rest}"


@cache
def busy_log() -> Path:
    """Return the path of a log into which a thread writes XID errors all the time."""
    log = Kmsg(Path(tempfile.mkdtemp()) / "kmsg")

    def write_errors() -> None:
        while True:
            # Without a reader the pipe gets full.
            with contextlib.suppress(BlockingIOError):
                log.write(xid())
            time.sleep(0.02)

    threading.Thread(target=write_errors, daemon=True).start()
    return log.path
