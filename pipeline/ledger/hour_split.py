"""Division of an interval's amounts among hours."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.ledger.schema import HOUR_NS

MOST_HOURS: Final = 400 * 24
"""Maximum number of hours for an interval. A longer interval means that a clock was wrong, and
writing years of hours would block everything else."""


def split_by_hour(
    end_ns: int, time_ns: int, amounts: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the part of each amount for each hour, the earliest hour first.

    Each amount is split by time. Parts are rounded down and the last hour gets the rest, so no part
    is negative and the parts sum to the amount. An interval that ends on the hour belongs to the
    hour before; one without length belongs to the hour of its end. Time before the last
    `MOST_HOURS` counts in the first of these hours.

    Args:
        end_ns: the end of the interval, in nanoseconds of Unix time.
        time_ns: its length, 0 or more.
        amounts: each 0 or more.

    Yields:
        The number of the hour, and one part for each amount.
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
