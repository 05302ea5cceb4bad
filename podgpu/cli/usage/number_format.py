"""Figures as people read them; a figure that isn't 0 is never shown as 0."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from pipeline.ledger.reports import Sum

HOUR_NS: Final = 3_600 * 10**9
KWH_MJ: Final = 3_600_000 * 1_000
WH_MJ: Final = KWH_MJ // 1_000
GIB: Final = 1 << 30

MARK: Final = "*"
"""Stands behind a figure that lacks what isn't known."""

_SPANS: Final = (("d", 86_400 * 10**9), ("h", HOUR_NS), ("min", 60 * 10**9), ("s", 10**9))


def scaled(value: int, unit: int, digits: int) -> str:
    """Return a figure in a unit: `12.3`; `<0.1` for one that is too small, but isn't 0.

    Args:
        value: the figure.
        unit: how much of it the unit is.
        digits: how many there are behind the point.
    """
    least = Decimal(1).scaleb(-digits)
    found = (Decimal(value) / unit).quantize(least, ROUND_HALF_EVEN)
    if value and not found:
        return f"<{least}" if value > 0 else f">-{least}"
    return f"{abs(found) if not value else found}"


def marked(total: Sum, unit: int, digits: int) -> str:
    """Return a sum in a unit; nothing if it isn't known, with a mark where it lacks something."""
    if total.known is None:
        return ""
    return scaled(total.known, unit, digits) + (MARK if total.partial else "")


NOTHING: Final = "-"
"""Stands where there is nothing to be compared, or it isn't known."""


def percent(part: Fraction | None) -> str:
    """Return a part of a whole in per cent, without digits behind the point."""
    if part is None:
        return NOTHING
    return f"{scaled(part.numerator * 100, part.denominator, 0)}%"


def digits_of(largest: int, unit: int) -> int:
    """Return how many digits behind the point a column shows, by its largest figure."""
    whole = abs(largest) // unit
    return 3 if whole < 10 else 2 if whole < 100 else 1


def span(ns: int) -> str:
    """Return a time in one unit: `0.3 s`, `12 min`, `5.2 h`, `3.1 d`."""
    name, unit = next((each for each in _SPANS if ns >= each[1]), _SPANS[-1])
    return f"{scaled(ns, unit, 1)} {name}"


def hours(ns: int) -> str:
    """Return a time in hours with one digit."""
    return scaled(ns, HOUR_NS, 1)
