"""What all that write to a disk need: words for what it says, names that outlive a power cut."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

NO_SPACE: Final = "no_space"

REASONS: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ENOSPC: NO_SPACE,
        errno.EDQUOT: NO_SPACE,
        errno.EFBIG: NO_SPACE,
        errno.EIO: "io_error",
        errno.EROFS: "read_only",
        errno.EACCES: "permission",
        errno.EPERM: "permission",
    }
)
"""What the system says in a word for a label, by its number."""

_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


def flush_names(descriptor: int) -> None:
    """Let the names in an open folder outlive a power cut.

    Raises:
        OSError: the disk refuses; not if the file system knows no such thing.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def flush_folder(folder: Path) -> None:
    """Let the names in a folder outlive a power cut.

    Raises:
        OSError: it can't be opened, or the disk refuses; not if the file system knows no such
            thing.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush_names(descriptor)
    finally:
        os.close(descriptor)
