"""Flushes folders to the disk, and names disk errors as label values."""

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

    Raises:
        OSError: the disk fails; not if the file system does not support it.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk.

    Raises:
        OSError: it can't be opened, or the disk fails; not if the file system does not support it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush_names(descriptor)
    finally:
        os.close(descriptor)
