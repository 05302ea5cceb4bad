"""How wrong the split of a device's busy time between its users may be."""

from math import isqrt
from typing import Final

WINDOW_NS: Final = 200_000_000
"""The driver attributes all busy time of a window of this length to one process."""


def split_error_ns(contested_ns: int | None, switching_ns: int | None) -> int | None:
    """Return the bound of the error of a busy time that was split.

    The driver gives each window to one process, as by a draw. The variance of these draws is at
    most the length of a window, multiplied by the contested time. The bound is two standard errors,
    plus the time for switching, which is the same error in each window. docs/usage.md compares the
    bound with known work.

    Args:
        contested_ns: see `ContainerUsage`; a sum over hours, holdings or devices is valid, too.
        switching_ns: the same.

    Returns:
        Nanoseconds; 0 if nothing is contested; None if an argument is None.
    """
    if contested_ns is None or switching_ns is None:
        return None
    # A damaged file may have negative amounts.
    return 2 * isqrt(WINDOW_NS * max(contested_ns, 0)) + max(switching_ns, 0)
