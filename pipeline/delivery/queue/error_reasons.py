"""What a disk says, in a word for a label."""

import errno
from types import MappingProxyType
from typing import Final

from pipeline.files.disk_sync import REASONS

TOO_LARGE: Final = "too_large"
"""Dropped: a record that is larger than the whole queue may be."""

OVER_SIZE: Final = "queue_over_size"
"""Dropped: the oldest, to make room."""

CORRUPT: Final = "corrupt"
"""Dropped: its bytes are no longer those that were written, or are gone."""

REMOVED: Final = "removed"
"""Dropped: somebody else has removed its file."""

LOCKED: Final = "locked"


_REASONS: Final = MappingProxyType({**REASONS, errno.ENOENT: "removed", errno.EAGAIN: LOCKED})

_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_LASTING: Final = frozenset(
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
    """Whether no waiting mends that a folder can't be opened."""
    return cause.errno in _LASTING


def is_resource_shortage(cause: OSError) -> bool:
    """Whether it says nothing about a file: the process or the node lacks something."""
    return cause.errno in _OURS


def reason_of(cause: OSError) -> str:
    """Return what the system said in a word, for a label; `other` for what is rare."""
    return _REASONS.get(cause.errno or 0, "other")


def text_of(cause: OSError) -> str:
    """Return what the system said, for people."""
    return cause.strerror or str(cause)
