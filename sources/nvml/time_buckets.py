"""Minimum, mean and maximum over a sliding window, without storing the samples."""

from collections import deque
from dataclasses import dataclass
from typing import Final

_PARTS: Final = 30
"""Buckets in a window: the window moves in steps of this part of its length."""


@dataclass(slots=True)
class _Bucket:
    start: int
    end: int
    minimum: int | float
    maximum: int | float
    area: float  # sum of value multiplied by time
    covered: int  # time

    def take(self, end: int, span: int, value: int | float) -> None:
        self.end = end
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)
        self.area += value * span
        self.covered += span


@dataclass(frozen=True, slots=True)
class Summary:
    """The statistics of the samples in a window.

    Attributes:
        start: start of the time that the first sample covers.
        minimum: the smallest value.
        mean: the mean, weighted by the time that each sample covers.
        maximum: the largest value.
    """

    start: int
    minimum: int | float
    mean: float
    maximum: int | float


class Buckets:
    """Samples, combined into buckets of time.

    There are about thirty buckets at most, however many samples there are. All times have the same
    unit and clock, and do not decrease.

    Args:
        length: of the window. A summary may cover up to a thirtieth, or one sample, more.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._width = max(1, length // _PARTS)
        self._buckets: deque[_Bucket] = deque()

    def __len__(self) -> int:
        return len(self._buckets)

    def add(self, end: int, span: int, value: int | float) -> None:
        """Add a sample that covers a span of at least 1, up to its end."""
        last = self._buckets[-1] if self._buckets else None
        if last is None or end - last.start > self._width:
            self._trim(end)
            last = _Bucket(end - span, end, value, value, 0.0, 0)
            self._buckets.append(last)
        last.take(end, span, value)

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
            min(bucket.minimum for bucket in buckets),
            sum(bucket.area for bucket in buckets) / sum(bucket.covered for bucket in buckets),
            max(bucket.maximum for bucket in buckets),
        )
