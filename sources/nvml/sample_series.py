"""The driver's samples of one quantity over a window: minimum, mean and maximum.

The samples come from repeated reads of a ring buffer. They are combined into buckets of time.
"""

import bisect
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sources.nvml.reader_parts import NONE32

Stamped: TypeAlias = tuple[int, int | float]
"""A sample: the time stamp of the driver in microseconds, and the value."""

_GAP: Final = 4
"""A sample covers the time since the previous sample, up to this multiple of the usual spacing."""

_MAX_SAMPLES: Final = 1 << 16

_PARTS: Final = 30
"""Buckets in a window: the window moves in steps of this part of its length."""


@dataclass(slots=True)
class Summary:
    """Statistics of samples.

    Attributes:
        start: start of the time that the first sample covers.
        end: time of the last sample.
        minimum: the smallest value.
        maximum: the largest value.
        area: the sum of the values, each multiplied by the time that its sample covers.
        covered: the sum of these times.
    """

    start: int
    end: int
    minimum: int | float
    maximum: int | float
    area: float = 0.0
    covered: int = 0

    @property
    def mean(self) -> float:
        """The mean, weighted by the time that each sample covers."""
        return self.area / self.covered


class Buckets:
    """Samples, combined into buckets of time.

    There are about thirty buckets at most, however many samples there are. All times have the same
    unit and clock, and do not decrease.

    Args:
        length: length of the window. A summary may cover up to a thirtieth, or one sample, more.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._width = max(1, length // _PARTS)
        self._buckets: deque[Summary] = deque()

    def __len__(self) -> int:
        return len(self._buckets)

    def add(self, end: int, span: int, value: int | float) -> None:
        """Add a sample that covers a span of at least 1, up to its end."""
        last = self._buckets[-1] if self._buckets else None
        if last is None or end - last.start > self._width:
            self._trim(end)
            last = Summary(end - span, end, value, value)
            self._buckets.append(last)
        last.end = end
        last.minimum = min(last.minimum, value)
        last.maximum = max(last.maximum, value)
        last.area += value * span
        last.covered += span

    def clear(self) -> None:
        """Remove all samples."""
        self._buckets.clear()

    def _trim(self, now: int) -> None:
        while self._buckets and self._buckets[0].end <= now - self._length:
            self._buckets.popleft()

    def over(self, now: int) -> Summary | None:
        """Return the summary of the window that ends now; None without a sample in it."""
        self._trim(now)
        if not self._buckets:
            return None
        buckets = self._buckets
        return Summary(
            buckets[0].start,
            buckets[-1].end,
            min(bucket.minimum for bucket in buckets),
            max(bucket.maximum for bucket in buckets),
            sum(bucket.area for bucket in buckets),
            sum(bucket.covered for bucket in buckets),
        )


class Series:
    """A window of the driver's samples, to which each read adds the new ones.

    If samples were lost between two reads, the window starts again, so that it has no gaps.

    The driver's clock may be set, so time stamps are only compared with each other.

    Args:
        length: length of the window, in microseconds.
        max_value: the largest possible value.

    Attributes:
        spacing: usual time between samples, in microseconds; 0 while it is unknown.
        capacity: how many samples the ring holds, as far as is known.
        has_implausible: whether there were impossible values since a caller last cleared the flag.
    """

    def __init__(self, length: int, max_value: int) -> None:
        self._buckets = Buckets(length)
        self._max_value = max_value
        self._newest: int | None = None
        self.spacing = 0
        self.capacity = _MAX_SAMPLES
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
            # The ring holds less than the driver reported, or the read was late.
            self.capacity = min(self.capacity, len(ring))
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
        """Start from zero: the GPU was down, or the clock was set."""
        self._buckets.clear()
        self._newest = None
