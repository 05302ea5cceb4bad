"""Reads a file within a size limit. It blocks: call it in a thread."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from config.value_types import ByteSize

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Changes whenever the file changes, within the resolution of its timestamps."""

# Without O_NONBLOCK, open would wait for a writer if the file is a pipe.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20


class UnreadableError(Exception):
    """The file can't be read; the text says why and how to fix it."""


class AbsentError(UnreadableError):
    """The file does not exist."""


@dataclass(frozen=True, slots=True)
class Content:
    """Contents of a file; `data` is None if the stamp is the known one."""

    stamp: Stamp
    data: bytes | None


def read_file(
    path: Path, max_size: ByteSize, known: Stamp | None, *, orphan: bool = False
) -> Content:
    """Read a file, unless its stamp is `known`.

    Args:
        path: the file.
        max_size: maximum size; a larger file is an error.
        known: stamp of the previous read.
        orphan: read the file even if it was replaced outside of a mount that shows the old file.

    Raises:
        UnreadableError: it can't be read. The text stays the same while the error does.
    """
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            return _read(descriptor, path, max_size, known, orphan=orphan)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise AbsentError(f"{path}: no such file") from None
    except PermissionError:
        raise UnreadableError(f"{path}: permission denied to uid {os.geteuid()}") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {os.strerror(error.errno or 0).lower()}") from None


def _read(
    descriptor: int, path: Path, max_size: ByteSize, known: Stamp | None, *, orphan: bool
) -> Content:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError(f"{path}: is not a regular file")
    if found.st_nlink == 0 and not orphan:
        # The path leads to a file without a name: the file is mounted, and was replaced outside.
        raise UnreadableError(
            f"{path}: the file was replaced, but this mount of it still shows the old file; mount "
            "the folder instead of the file, or let the writer write in place"
        )
    stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    if stamp == known:
        return Content(stamp, None)
    chunks: list[bytes] = []
    size = 0
    # The file may have grown since fstat: a program may be writing it now.
    while size <= max_size and (chunk := os.read(descriptor, _CHUNK)):
        chunks.append(chunk)
        size += len(chunk)
    if size > max_size:
        raise UnreadableError(f"{path}: is larger than max_size ({max_size})")
    return Content(stamp, b"".join(chunks))
