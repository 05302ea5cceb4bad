"""A lock on a file, with the number of the process that holds it written into it. All blocks."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
"""With which a lock file is opened by who wants the lock."""

_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES: Final = 20
_BETWEEN: Final = 0.005
"""Seconds. Who only looks whether a lock is held, as `podgpu doctor` does, has it for some
microseconds, and must not keep podgpu from starting."""


def take(descriptor: int) -> None:
    """Take a lock that somebody may have for a moment: tried for a tenth of a second.

    Raises:
        BlockingIOError: somebody has it for longer.
        OSError: there can be no lock.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_BETWEEN)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sign(descriptor: int) -> None:
    """Write this process's number into a lock file that it holds, if there is room for it.

    For people only, and a full disk takes no number.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def signed(descriptor: int) -> str:
    """Return the process that wrote its number into a lock file, in words; empty if none did.

    Raises:
        OSError: it can't be read.
    """
    number = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return f"process {number}" if number.isdecimal() else ""


def locked_by(path: Path) -> str | None:
    """Return who holds a lock, in words that may be empty; None if nobody does.

    A shared lock is asked for and given back at once.

    Args:
        path: of the lock file.

    Raises:
        OSError: there is none, or it can't be read.
    """
    descriptor = os.open(path, _READ_FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = signed(descriptor)
        return f"{owner} in its own container" if owner else ""
    finally:
        os.close(descriptor)
    return None
