"""Keeps a long-lived process with a handful of threads small."""

import ctypes
import gc

_M_ARENA_MAX = -8  # malloc.h
_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20
_PR_SET_THP_DISABLE = 41  # linux/prctl.h


def trim(*, large: bool = False) -> None:
    """Have the C library and the kernel round up less. Call before threads start.

    By default every thread gets a heap of its own from the allocator, and where transparent huge
    pages are always on, each stack and heap that is touched takes 2 MB. Neither helps a process
    that works for some milliseconds a second. A platform that knows neither call is left as it is.

    Args:
        large: the process has blocks of many megabytes now and then. Each of more than one is given
            back as soon as it is free; by default the allocator keeps them once it has seen some.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 2)
        if large:
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def settle() -> None:
    """Exempt what is there from garbage collection. Call once everything has been loaded.

    Modules and classes live as long as the process: without this each full collection walks all of
    them, which takes longer than a round of readings.
    """
    gc.collect()
    gc.freeze()
