"""A table for people, which fits a terminal: what is too long for it is cut in its middle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from podgpu.cli.terminal_text import fit, middle, terminal_safe
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.usage.number_format import MARK

_BETWEEN: Final = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: its heading.
        name: it has names, which stand at the left and may be cut; else figures.
        rank: where there is no room for all, those of the highest rank go first; 0 never goes.
        least: places that a name has at least, if it needs them.
    """

    title: str
    name: bool = False
    rank: int = 0
    least: int = 14


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a heading and the rows, line by line.

    Args:
        columns: what stands in them.
        rows: a cell for each column.
        width: of the terminal; 0 where there is none, and nothing is cut.
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
        _BETWEEN.join(
            fit(middle(line[at], room[at]), room[at], right=not columns[at].name) for at in shown
        ).rstrip()
        for line in lines
    ]


def _shown(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    """Return which columns there is room for."""
    shown = list(range(len(columns)))

    def least() -> int:
        taken = (
            min(needed[at], columns[at].least) if columns[at].name else needed[at] for at in shown
        )
        return sum(taken) + len(_BETWEEN) * (len(shown) - 1)

    while width and least() > width:
        last = max(shown, key=lambda at: (columns[at].rank, at))
        if not columns[last].rank:
            break
        shown.remove(last)
    return shown


def _room(
    columns: Sequence[Column], needed: Sequence[int], shown: Sequence[int], width: int
) -> list[int]:
    """Return how many places each column has; names share what figures leave."""
    room = list(needed)
    over = sum(room[at] for at in shown) + len(_BETWEEN) * (len(shown) - 1) - width
    for _ in range(max(over, 0) if width else 0):
        # The longest first, place by place: there are few.
        long = [at for at in shown if columns[at].name and room[at] > columns[at].least]
        if long:
            room[max(long, key=lambda at: room[at])] -= 1
    return room
