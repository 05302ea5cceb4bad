"""Reduces the memory of a long-running process with few threads."""

import ctypes
import gc

_M_ARENA_MAX = -8  # malloc.h
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20
_PR_SET_THP_DISABLE = 41  # linux/prctl.h


def trim(*, large: bool = False) -> None:
    """Reduce the memory that the C library and the kernel reserve. Call this before threads start.

    By default the allocator gives every thread its own heap, and with transparent huge pages each
    stack and heap takes 2 MB. A process that works some milliseconds per second needs neither. On a
    platform without these calls nothing happens.

    Args:
        large: whether the process sometimes has blocks of many megabytes. Blocks of more than 1 MB
            are then returned to the system when they are freed; by default the allocator keeps
            some of them.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 2)
        if large:
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def settle() -> None:
    """Exclude the present objects from garbage collection. Call this when everything is loaded.

    Modules and classes live as long as the process. Without this, each full collection visits all
    of them, which takes longer than a round of readings.
    """
    gc.collect()
    gc.freeze()
