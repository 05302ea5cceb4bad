"""Format numbers, and lay out a text table for the width of a terminal.

A number that is not 0 is never shown as 0. Long names are cut in the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from pipeline.ledger.reports import Sum
from podgpu.cli.terminal_text import fit, middle, terminal_safe
from podgpu.cli.terminal_text import width as wide

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


_SEPARATOR: Final = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading.
        name: whether it has names, which are aligned left and may be cut. Numbers are not cut.
        rank: if there is no room for all columns, the highest rank is omitted first; 0 never is.
        least: least width to which a name is cut.
    """

    title: str
    name: bool = False
    rank: int = 0
    least: int = 14


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the heading and the rows as lines of text.

    Args:
        columns: the columns.
        rows: a cell for each column.
        width: width of the terminal; 0 without a terminal, so that nothing is cut.
    """
    lines = [
        [column.title for column in columns],
        *([terminal_safe(cell) for cell in row] for row in rows),
    ]
    for at, column in enumerate(columns):
        if not column.name and any(line[at].endswith(MARK) for line in lines):
            for line in lines:
                line[at] = line[at] if line[at].endswith(MARK) else f"{line[at]} "
    needed = [max(wide(line[at]) for line in lines) for at in range(len(columns))]
    shown = _shown(columns, needed, width)
    room = _room(columns, needed, shown, width)
    return [
        _SEPARATOR.join(
            fit(middle(line[at], room[at]), room[at], right=not columns[at].name) for at in shown
        ).rstrip()
        for line in lines
    ]


def _shown(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    """Return the indexes of the columns that there is room for."""
    shown = list(range(len(columns)))

    def least_width() -> int:
        widths = (
            min(needed[at], columns[at].least) if columns[at].name else needed[at] for at in shown
        )
        return sum(widths) + len(_SEPARATOR) * (len(shown) - 1)

    while width and least_width() > width:
        last = max(shown, key=lambda at: (columns[at].rank, at))
        if not columns[last].rank:
            break
        shown.remove(last)
    return shown


def _room(
    columns: Sequence[Column], needed: Sequence[int], shown: Sequence[int], width: int
) -> list[int]:
    """Return the width of each column. Columns with names share the room that numbers leave."""
    room = list(needed)
    over = sum(room[at] for at in shown) + len(_SEPARATOR) * (len(shown) - 1) - width
    for _ in range(max(over, 0) if width else 0):
        # One character at a time from the longest name; there are few.
        longest = [at for at in shown if columns[at].name and room[at] > columns[at].least]
        if longest:
            room[max(longest, key=lambda at: room[at])] -= 1
    return room
