"""Lock files that contain the process id of the lock's holder. All functions here block."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
"""Flags with which a lock file is opened to be locked."""

_READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES: Final = 20
_TRY_SECONDS: Final = 0.005
"""Seconds between tries. `podgpu doctor` holds a lock for some microseconds to check whether it is
free, which must not keep podgpu from starting."""


def take(descriptor: int) -> None:
    """Lock a file. Try for a tenth of a second.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file cannot be locked.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_TRY_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sign(descriptor: int) -> None:
    """Write this process's id into a lock file whose lock it holds.

    The id is only for messages, so a failed write is not an error.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def signed(descriptor: int) -> str:
    """Return `process N` for the number N in a lock file; empty if it contains no number.

    Raises:
        OSError: the file cannot be read.
    """
    number = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return f"process {number}" if number.isdecimal() else ""


def locked_by(path: Path) -> str | None:
    """Return the process that holds a lock, as text; None if no process holds the lock.

    The text is empty if the file contains no process id. For the check, a shared lock is taken and
    released immediately.

    Args:
        path: path of the lock file.

    Raises:
        OSError: the file does not exist, or cannot be read.
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
