"""Opens and reads the file; blocking, so it runs in a thread."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from config.value_types import ByteSize

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Changes whenever the file does, within the granularity of its clock."""

# Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20


class UnreadableError(Exception):
    """The file can't be read; the text says why and what helps."""


class AbsentError(UnreadableError):
    """There is no such file."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read; `data` is None if its stamp is the one that was known."""

    stamp: Stamp
    data: bytes | None


def read_file(
    path: Path, max_size: ByteSize, known: Stamp | None, *, orphan: bool = False
) -> Content:
    """Read a file, unless its stamp is `known`.

    Args:
        path: the file.
        max_size: a larger one is not read.
        known: what was read before.
        orphan: read it even if it was replaced outside its mount, which never shows the new one.

    Raises:
        UnreadableError: with a text that stays the same while the fault does.
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
        # Opened by its path and yet without a name: the mount keeps a file that was replaced.
        raise UnreadableError(
            f"{path}: was replaced outside, and this mount of the file still shows the old one; "
            "mount the folder instead of the file, or let the writer write in place"
        )
    stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
    if stamp == known:
        return Content(stamp, None)
    chunks: list[bytes] = []
    size = 0
    # The size of a moment ago is no limit: the writer may be at it now.
    while size <= max_size and (chunk := os.read(descriptor, _CHUNK)):
        chunks.append(chunk)
        size += len(chunk)
    if size > max_size:
        raise UnreadableError(f"{path}: is larger than max_size ({max_size})")
    return Content(stamp, b"".join(chunks))
