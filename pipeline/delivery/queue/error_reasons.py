"""Reasons of dropped points and of disk errors, as label values."""

import errno
from types import MappingProxyType
from typing import Final

from pipeline.files.disk_sync import REASONS

TOO_LARGE: Final = "too_large"
"""Dropped: the record is larger than the queue may be."""

OVER_SIZE: Final = "queue_over_size"
"""Dropped: the oldest records were removed to make room."""

CORRUPT: Final = "corrupt"
"""Dropped: the record's bytes are corrupt or missing."""

REMOVED: Final = "removed"
"""Dropped: another program removed the file."""

_REASONS: Final = MappingProxyType({**REASONS, errno.ENOENT: "removed", errno.EAGAIN: "locked"})

SHORTAGE_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The process or the node lacks a resource; the file itself may be fine."""

PERMANENT_ERRNOS: Final = frozenset(
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
"""Errors of opening a folder that waiting does not fix."""


def reason_of(cause: OSError) -> str:
    """Return an error as a label value; `other` for rare errors."""
    return _REASONS.get(cause.errno or 0, "other")


def text_of(cause: OSError) -> str:
    """Return the text of an error, for users."""
    return cause.strerror or str(cause)
