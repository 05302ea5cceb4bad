"""Reads regular files: whole ones within a size limit, or piece by piece in an event loop."""

import asyncio
import contextlib
import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, TypeAlias

import aiofiles.os
import aiofiles.threadpool
from aiofiles.threadpool.binary import AsyncBufferedReader

from config.value_types import ByteSize

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""State of a file: times of its changes, size, inode and device. It changes whenever the file
changes, within the resolution of the file system's timestamps."""

# Without O_NONBLOCK, open would wait for a writer if the file is a pipe.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MOST_GROWTH: Final = 1 << 20

_CLOSE_TIMEOUT: Final = 0.5
"""Seconds that a cancelled reader waits for the file system to return from the current call."""


class UnreadableError(Exception):
    """The file cannot be read. The text says why."""


class AbsentError(UnreadableError):
    """The file does not exist."""


class TooLargeError(UnreadableError):
    """The file is larger than the caller's limit."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a file. `data` is None if the file still has the known stamp."""

    stamp: Stamp
    data: bytes | None


def read_file(
    path: Path, max_size: ByteSize, known: Stamp | None, *, orphan: bool = False
) -> Content:
    """Read a file, unless its stamp is `known`. It blocks: call it in a thread.

    Args:
        path: the file.
        max_size: maximum size; a larger file is an error.
        known: stamp of the previous read; None if there was none.
        orphan: whether to read a file that was deleted: the path is a mount of a file that was
            replaced outside of the mount.

    Raises:
        TooLargeError: the file is larger than `max_size`.
        UnreadableError: the file cannot be read. The text is the same as long as the cause is.
    """
    with _with_reason(path), open(path, "rb", opener=_open_regular) as file:
        stamp = _stamp(os.fstat(file.fileno()), path, orphan=orphan)
        data = None if stamp == known else file.read(_bytes_to_read(stamp, max_size))
    return _checked(Content(stamp, data), path, max_size)


run_in_executor = aiofiles.os.wrap
"""Return an asynchronous version of a function. Its calls run in the default executor."""


async def read_local_file(path: Path, max_size: ByteSize, known: Stamp | None) -> Content:
    """Read a file as `read_file` does, without blocking the event loop."""
    return await run_in_executor(read_file)(path, max_size, known)


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[AsyncBufferedReader]:
    """Open a regular file for reading. Calls of the reader run in the default executor.

    If the task is cancelled while a call hangs, the file is closed when that call returns.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    file, loop = _ThreadedFile(path), asyncio.get_running_loop()
    opening = loop.run_in_executor(None, file.open)
    limit = None
    try:
        yield aiofiles.threadpool.wrap(await asyncio.shield(opening))
    except asyncio.CancelledError:
        limit = _CLOSE_TIMEOUT
        raise
    finally:
        # A future of the executor, because a task is cancelled when the event loop ends.
        await asyncio.wait({loop.run_in_executor(None, file.close)}, timeout=limit)


class _ThreadedFile:
    """A file that one thread opens and another closes, even while the first still opens it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._closed = False
        self._file: BufferedReader | None = None

    def open(self) -> BufferedReader:
        file = open(self._path, "rb", opener=_open_regular)  # noqa: SIM115
        with self._lock:
            self._file = file
            if self._closed:
                file.close()
        return file

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._file is not None:
            self._file.close()


def _open_regular(path: str, _flags: int) -> int:
    descriptor = os.open(path, _FLAGS)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # `open` refuses a folder
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "Is not a regular file")


@contextlib.contextmanager
def _with_reason(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise AbsentError(f"{path}: no such file") from None
    except PermissionError:
        raise UnreadableError(f"{path}: permission denied to uid {os.geteuid()}") from None
    except IsADirectoryError:
        raise UnreadableError(f"{path}: is not a regular file") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _stamp(found: os.stat_result, path: Path, *, orphan: bool = False) -> Stamp:
    if found.st_nlink == 0 and not orphan:
        # The path leads to a file without a name: the file is mounted, and was replaced outside.
        raise UnreadableError(
            f"{path}: the file was replaced, but this mount of it still shows the old file; mount "
            "the folder instead of the file, or let the writer write in place"
        )
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


def _bytes_to_read(stamp: Stamp, max_size: ByteSize) -> int:
    """Return a limit above the size: a program may be writing the file, so it may have grown."""
    return min(max_size, stamp[2] + _MOST_GROWTH) + 1


def _checked(content: Content, path: Path, max_size: ByteSize) -> Content:
    if content.data is not None and len(content.data) > max_size:
        raise TooLargeError(f"{path}: is larger than the maximum of {max_size}")
    return content
