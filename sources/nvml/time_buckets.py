"""Least, mean and most over a sliding window, without keeping the samples."""

from collections import deque
from dataclasses import dataclass
from typing import Final

_PARTS: Final = 30
"""Buckets in a window: it slides by that part of its length."""


@dataclass(slots=True)
class _Bucket:
    start: int
    end: int
    least: int | float
    most: int | float
    area: float  # value times time
    covered: int  # time

    def take(self, end: int, span: int, value: int | float) -> None:
        self.end = end
        self.least = min(self.least, value)
        self.most = max(self.most, value)
        self.area += value * span
        self.covered += span


@dataclass(frozen=True, slots=True)
class Summary:
    """What the samples of a window come to.

    Attributes:
        start: where the time of the first of them begins.
        least: the least of them.
        mean: each weighs as much as the time that it stands for.
        most: the most of them.
    """

    start: int
    least: int | float
    mean: float
    most: int | float


class Buckets:
    """Samples put together by time.

    There are never more than some thirty buckets, however many samples come. All times are in one
    unit of one clock. Times don't go back.

    Args:
        length: of the window. What is summed up is at most a thirtieth longer, or one sample.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._width = max(1, length // _PARTS)
        self._buckets: deque[_Bucket] = deque()

    def __len__(self) -> int:
        return len(self._buckets)

    def add(self, end: int, span: int, value: int | float) -> None:
        """Take a sample that stands for a span, 1 at least, up to its end."""
        last = self._buckets[-1] if self._buckets else None
        if last is None or end - last.start > self._width:
            self._trim(end)
            last = _Bucket(end - span, end, value, value, 0.0, 0)
            self._buckets.append(last)
        last.take(end, span, value)

    def clear(self) -> None:
        """Forget all samples."""
        self._buckets.clear()

    def _trim(self, now: int) -> None:
        while self._buckets and self._buckets[0].end <= now - self._length:
            self._buckets.popleft()

    def over(self, now: int) -> Summary | None:
        """Sum up the window that ends now; None without a sample in it."""
        self._trim(now)
        if not self._buckets:
            return None
        buckets = self._buckets
        return Summary(
            buckets[0].start,
            min(bucket.least for bucket in buckets),
            sum(bucket.area for bucket in buckets) / sum(bucket.covered for bucket in buckets),
            max(bucket.most for bucket in buckets),
        )
