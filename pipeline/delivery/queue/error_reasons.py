"""Reasons of dropped points and of disk errors, as label values."""

import errno
from types import MappingProxyType
from typing import Final

from pipeline.files.disk_sync import REASONS

TOO_LARGE: Final = "too_large"
"""Dropped: the record is larger than the queue may be."""

OVER_SIZE: Final = "queue_over_size"
"""Dropped: the oldest records, to make room."""

CORRUPT: Final = "corrupt"
"""Dropped: the record's bytes are corrupt or missing."""

REMOVED: Final = "removed"
"""Dropped: another program removed the file."""

_REASONS: Final = MappingProxyType({**REASONS, errno.ENOENT: "removed", errno.EAGAIN: "locked"})

_RESOURCE_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_PERMANENT_ERRNOS: Final = frozenset(
    {
        errno.EACCES,
        errno.EAGAIN,
        errno.EEXIST,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOLCK,
        errno.ENOTDIR,
        errno.ENOTSUP,
        errno.EPERM,
    }
)


def is_permanent(cause: OSError) -> bool:
    """Return whether an error of opening a folder can't be fixed by waiting."""
    return cause.errno in _PERMANENT_ERRNOS


def is_resource_shortage(cause: OSError) -> bool:
    """Return whether the process or the node lacks a resource; the file itself may be fine."""
    return cause.errno in _RESOURCE_ERRNOS


def reason_of(cause: OSError) -> str:
    """Return an error as a label value; `other` for rare errors."""
    return _REASONS.get(cause.errno or 0, "other")


def text_of(cause: OSError) -> str:
    """Return the text of an error, for users."""
    return cause.strerror or str(cause)
