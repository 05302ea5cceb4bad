"""Flushes folders to the disk, and maps disk errors to values of the label `reason`."""

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
"""Label values of errors, by errno."""

_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP})


def flush_names(descriptor: int) -> None:
    """Flush the names in an open folder to the disk.

    A file system that does not support this is not an error.

    Raises:
        OSError: the disk fails.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk.

    A file system that does not support this is not an error.

    Raises:
        OSError: the folder cannot be opened, or the disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush_names(descriptor)
    finally:
        os.close(descriptor)
