"""A kernel's log for tests: a pipe in packet mode gives one record to each read, as the device."""

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
    """A record as `/dev/kmsg` gives it, with properties behind it."""
    head = f"{facility * 8 + level},{number},{stamp_us},-"
    return f"{head};{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n".encode()


class Kmsg:
    """What stands in for the device.

    Args:
        path: where it is made.

    Attributes:
        stamp_us: what the next record bears.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp_us = 1_000_000
        os.mkfifo(path)
        # To read as well, so that it can be opened, and stays, while nobody else has it open.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 1 << 20)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)
        self._numbers = count()

    def says(self, text: str, *, facility: int = KERN, skip: int = 0) -> int:
        """Write a record behind so many that are lost; return its number."""
        for _ in range(skip):
            next(self._numbers)
        number = next(self._numbers)
        self.raw(record(number, self.stamp_us, text, facility=facility))
        return number

    def raw(self, data: bytes) -> None:
        os.write(self._fd, data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def xid(code: int = 79, bus: str = "PCI:0000:3b:00", rest: str = ", pid=1234, name=python") -> str:
    """A line of the driver's."""
    return f"NVRM: Xid ({bus}): {code}{rest}"


@cache
def talking() -> Path:
    """A log in which a GPU has an error all the time, kept by a thread of its own."""
    log = Kmsg(Path(tempfile.mkdtemp()) / "kmsg")

    def talk() -> None:
        while True:
            # Nobody may be reading.
            with contextlib.suppress(BlockingIOError):
                log.says(xid())
            time.sleep(0.02)

    threading.Thread(target=talk, daemon=True).start()
    return log.path
