"""Lays what an interval brought onto the hours that it lies in."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.ledger.schema import HOUR_NS

MOST_HOURS: Final = 400 * 24
"""Hours that an interval is laid onto at most. A longer one is a clock that was wrong, and years of
hours would hold up all else."""


def split_by_hour(
    end_ns: int, time_ns: int, amounts: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield what falls into each hour, the earliest first.

    Each amount is split by time and rounded down, and its rest goes to the last hour: so its parts
    are never negative, and come to the whole. An interval that ends with a full hour lies in the
    one before; one of no length lies in that of its end. What lies before the last `MOST_HOURS`
    falls into the first of them.

    Args:
        end_ns: the end of the interval, in nanoseconds of Unix time.
        time_ns: its length, 0 or more.
        amounts: each 0 or more.

    Yields:
        The number of an hour, and as many parts as amounts.
    """
    last = (end_ns - 1) // HOUR_NS
    start_ns = end_ns - time_ns
    first = max(min(start_ns // HOUR_NS, last), last - MOST_HOURS)
    before = [0] * len(amounts)
    for hour in range(first, last):
        passed = (hour + 1) * HOUR_NS - start_ns
        until = [amount * passed // time_ns for amount in amounts]
        yield hour, tuple([now - then for now, then in zip(until, before, strict=True)])
        before = until
    yield last, tuple([amount - then for amount, then in zip(amounts, before, strict=True)])
