"""Format numbers for text tables. A number that is not 0 is never shown as 0."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from pipeline.ledger.reports import Sum

HOUR_NS: Final = 3_600 * 10**9
KWH_MJ: Final = 3_600_000 * 1_000
WH_MJ: Final = KWH_MJ // 1_000
GIB: Final = 1 << 30

MARK: Final = "*"
"""Follows a number that is incomplete, because a part of it is unknown."""

_SPANS: Final = (("d", 86_400 * 10**9), ("h", HOUR_NS), ("min", 60 * 10**9), ("s", 10**9))


def scaled(value: int, unit: int, digits: int) -> str:
    """Return a number in a unit, such as `12.3`; `<0.1` for a small number that is not 0.

    Args:
        value: the number.
        unit: size of the unit.
        digits: number of decimal places.
    """
    least = Decimal(1).scaleb(-digits)
    found = (Decimal(value) / unit).quantize(least, ROUND_HALF_EVEN)
    if value and not found:
        return f"<{least}" if value > 0 else f">-{least}"
    return f"{abs(found) if not value else found}"


def marked(total: Sum, unit: int, digits: int) -> str:
    """Return a sum in a unit; empty if unknown, with a mark if incomplete."""
    if total.known is None:
        return ""
    return scaled(total.known, unit, digits) + (MARK if total.partial else "")


NOTHING: Final = "-"
"""Shown if there is no value, or it is unknown."""


def percent(part: Fraction | None) -> str:
    """Return a fraction in per cent, without decimal places."""
    if part is None:
        return NOTHING
    return f"{scaled(part.numerator * 100, part.denominator, 0)}%"


def digits_of(largest: int, unit: int) -> int:
    """Return the number of decimal places of a column, from its largest value."""
    whole = abs(largest) // unit
    return 3 if whole < 10 else 2 if whole < 100 else 1


def span(ns: int) -> str:
    """Return a duration in one unit: `0.3 s`, `12 min`, `5.2 h`, `3.1 d`."""
    name, unit = next((each for each in _SPANS if ns >= each[1]), _SPANS[-1])
    return f"{scaled(ns, unit, 1)} {name}"


def hours(ns: int) -> str:
    """Return a duration in hours, with one decimal place."""
    return scaled(ns, HOUR_NS, 1)
