"""The driver's samples of one quantity over a window, from repeated reads of its ring buffer."""

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from sources.nvml.targets import NONE32
from sources.nvml.time_buckets import Buckets, Summary

Stamped: TypeAlias = tuple[int, int | float]
"""A sample: the time stamp of the driver in microseconds, and the value."""

_GAP: Final = 4
"""A sample covers the time since the one before, but at most this multiple of the usual spacing."""


class Series:
    """Adds the new samples of each read to a window without gaps.

    The driver's clock may be set, so time stamps are only compared with each other.

    Args:
        length: of the window, in microseconds.
        max_value: the largest possible value.

    Attributes:
        spacing: usual time between samples, in microseconds; 0 while it is unknown.
        wrapped_samples: size of the ring at the last read that came too late; None for none.
        has_implausible: whether there were impossible values since this was last cleared.
    """

    def __init__(self, length: int, max_value: int) -> None:
        self._buckets = Buckets(length)
        self._max_value = max_value
        self._newest: int | None = None
        self.spacing = 0
        self.wrapped_samples: int | None = None
        self.has_implausible = False

    def add_ring(self, ring: Sequence[Stamped]) -> bool:
        """Add the new samples of a sorted ring; return whether there were any."""
        gaps = sorted(later[0] - earlier[0] for earlier, later in itertools.pairwise(ring))
        if gaps:
            self.spacing = gaps[len(gaps) // 2]
        newest = ring[-1][0]
        if self._newest is not None and newest < self._newest:
            self.reset()  # the clock was set back, so the known samples are in the future
        before = self._newest
        if newest == before:
            return False
        first = 0 if before is None else bisect.bisect_right(ring, (before, math.inf))
        longest = max(1, _GAP * self.spacing)
        if first == 0 and before is not None and ring[0][0] - before > longest:
            self.wrapped_samples = len(ring)
            self._buckets.clear()  # the samples in between are lost
            before = None
        for end, value in itertools.islice(ring, first, None):
            span = self.spacing if before is None else min(end - before, longest)
            before = end
            if 0 <= value <= self._max_value:
                self._buckets.add(end, max(1, span), value)
            elif value != NONE32:
                self.has_implausible = True
        self._newest = newest
        return True

    def summary(self, since_newest: int) -> tuple[Summary, int] | None:
        """Return the summary of the window and how far back it reaches; None without a sample.

        Args:
            since_newest: microseconds since the newest sample was read: the window moves on even if
                the driver takes no samples.
        """
        if self._newest is None:
            return None
        now = self._newest + since_newest
        summary = self._buckets.over(now)
        return None if summary is None else (summary, now - summary.start)

    def reset(self) -> None:
        """Start from zero: the GPU was away, or the clock was set."""
        self._buckets.clear()
        self._newest = None
