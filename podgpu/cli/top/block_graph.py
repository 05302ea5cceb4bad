"""Graphs of the last hour in block characters. Pure."""

from collections.abc import Sequence
from typing import Final

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_EIGHTHS: Final = 8


def graph(values: Sequence[float | None], columns: int, rows: int = 1) -> list[str]:
    """Return a graph as lines of text, the top one first.

    Args:
        values: fractions from 0 to 1, the oldest first. None is unknown, and a blank. A known 0 has
            the lowest block, so that it differs from an unknown value.
        columns: width of the graph. If there are more values than columns, each column shows the
            mean of its values; if there are fewer, values are repeated.
        rows: height of the graph.
    """
    if not values or columns < 1:
        return [" " * max(columns, 0)] * rows
    heights = [_height(mean, rows) for mean in _means(values, columns)]
    return [
        "".join(_LEVELS[min(max(height - below * _EIGHTHS, 0), _EIGHTHS)] for height in heights)
        for below in reversed(range(rows))
    ]


def _height(value: float | None, rows: int) -> int:
    """Return the height of a value in eighths of a line: at least 1 if it is known."""
    if value is None:
        return 0
    # High graphs can be directly below each other: a gap shows where the next one begins.
    most = rows * _EIGHTHS - (1 if rows > 1 else 0)
    return max(round(min(max(value, 0.0), 1.0) * most), 1)


def _means(values: Sequence[float | None], columns: int) -> list[float | None]:
    found: list[float | None] = []
    for column in range(columns):
        start = column * len(values) // columns
        end = max((column + 1) * len(values) // columns, start + 1)
        known = [value for value in values[start:end] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found
