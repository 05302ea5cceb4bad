"""What a ring of the driver's own samples tells over time, read again and again."""

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from sources.nvml.readers import NONE32
from sources.nvml.time_buckets import Buckets, Summary

Stamped: TypeAlias = tuple[int, int | float]
"""A sample: when the driver took it, in microseconds, and what it found."""

_GAP: Final = 4
"""A sample stands for the time since the one before, but for no more than so many usual ones."""


class Series:
    """The samples that were new each time, summed up over a window without a hole.

    The driver stamps by a clock that may be set, so stamps are compared with each other only.

    Args:
        length: of the window, in microseconds.
        most: the largest value that can be true.

    Attributes:
        spacing: microseconds from one sample to the next, as they usually come; 0 while that can't
            be told.
        wrapped_samples: how many samples the ring had when it was last read too late; None for
            never.
        has_implausible: whether there were values that can't be true, since this was last set.
    """

    def __init__(self, length: int, most: int) -> None:
        self._buckets = Buckets(length)
        self._most = most
        self._newest: int | None = None
        self.spacing = 0
        self.wrapped_samples: int | None = None
        self.has_implausible = False

    def add_ring(self, ring: Sequence[Stamped]) -> bool:
        """Take what is new in a ring, of which all samples are given, sorted; whether any is."""
        gaps = sorted(later[0] - one[0] for one, later in itertools.pairwise(ring))
        if gaps:
            self.spacing = gaps[len(gaps) // 2]
        newest = ring[-1][0]
        if self._newest is not None and newest < self._newest:
            self.reset()  # the clock was set back: what is known lies in the future
        before = self._newest
        if newest == before:
            return False
        first = 0 if before is None else bisect.bisect_right(ring, (before, math.inf))
        longest = max(1, _GAP * self.spacing)
        if first == 0 and before is not None and ring[0][0] - before > longest:
            self.wrapped_samples = len(ring)
            self._buckets.clear()  # what lies between is lost
            before = None
        for end, value in itertools.islice(ring, first, None):
            span = self.spacing if before is None else min(end - before, longest)
            before = end
            if 0 <= value <= self._most:
                self._buckets.add(end, max(1, span), value)
            elif value != NONE32:
                self.has_implausible = True
        self._newest = newest
        return True

    def summary(self, silence: int) -> tuple[Summary, int] | None:
        """Sum up the window, and tell how far back it reaches; None without a sample in it.

        Args:
            silence: microseconds since the newest sample was taken: the window goes on when the
                driver falls silent.
        """
        if self._newest is None:
            return None
        now = self._newest + silence
        summary = self._buckets.over(now)
        return None if summary is None else (summary, now - summary.start)

    def reset(self) -> None:
        """Start anew: the GPU was away, or time is no longer what it was."""
        self._buckets.clear()
        self._newest = None
