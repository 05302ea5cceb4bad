"""Sums of amounts that may be unknown. Unknown is not 0; a sum says whether a part is missing."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of amounts, as far as it is known.

    Attributes:
        known: the sum of the known amounts; None if none is known.
        partial: whether an amount is unknown and missing in the sum.
    """

    known: int | None = None
    partial: bool = False


def sum_known(values: Iterable[int | None]) -> Sum:
    """Return the sum of the known values; 0 if there are no values at all."""
    rows = list(values)
    known = [value for value in rows if value is not None]
    if rows and not known:
        return Sum()
    return Sum(sum(known), len(known) < len(rows))
