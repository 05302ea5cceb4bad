"""Draws the rows of devices one below the other, for narrow terminals. Pure."""

from collections.abc import Sequence
from typing import Final

from podgpu.cli.top.block_graph import graph
from podgpu.cli.top.row import Cell, Graph, Kind, Row
from podgpu.cli.top.styled_text import EMPTY, Line, Style, fitted, joined, styled, width_of
from podgpu.cli.top.table_layout import name_below, name_line, note_lines

_MEMORY_UNIT: Final = " GiB"
_LEAST_TEXT: Final = 9
"""Minimum width of the text beside a graph, so that graphs of a GPU have similar widths."""

_UNKNOWN: Final = styled("-")


def narrow_lines(rows: Sequence[Row], width: int) -> list[tuple[Row, Line]]:
    """Return the lines of the rows of one GPU, each with its row.

    Args:
        rows: the rows.
        width: width of the terminal.
    """
    found: list[tuple[Row, Line]] = []
    for row in rows:
        if row.kind is Kind.NOTE:
            found += ((row, line) for line in note_lines(row, width))
        else:
            first, *more = (fitted(line, width) for line in _lines(row, width))
            lines = [first, *name_below(row, first, width), *more]
            found += ((row, line) for line in lines)
    return found


def _lines(row: Row, width: int) -> list[Line]:
    if row.kind is Kind.GPU:
        right = _listed(row, Cell.POWER, Cell.TEMPERATURE)
        return [_ends(row, right, width), *_graph_lines(row, width)]
    if row.kind is Kind.INSTANCE:
        first = _ends(row, _listed(row, Cell.ENERGY, Cell.HELD), width)
        text = _listed(row, Cell.USE, Cell.MEMORY)
        return [first, _graph_line(row, "", row.graphs[Cell.USE_GRAPH], text, width)]
    figures = _listed(row, Cell.USE, Cell.MEMORY, Cell.ENERGY, Cell.HELD, Cell.SHARE)
    if row.kind is Kind.PROCESS:
        return [_ends(row, figures, width)]
    name = [name_line(row, width)] if row.name or row.detail or row.remark else []
    return [*name, *([styled(" " * (2 * row.depth + 2)) + figures] if figures else [])]


def _ends(row: Row, right: Line, width: int) -> Line:
    """Return a line with the name of a row at its left end, and a text at its right end."""
    if not right:
        return name_line(row, width)
    room = max(width - width_of(right) - 1, 0)
    return joined([fitted(name_line(row, room), room), right])


def _listed(row: Row, *cells: Cell) -> Line:
    parts = [(cell, row.cells[cell]) for cell in cells if cell in row.cells]
    return joined(
        [
            line + styled(_MEMORY_UNIT if cell is Cell.MEMORY and line != _UNKNOWN else "")
            for cell, line in parts
        ],
        2,
    )


def _graph_lines(row: Row, width: int) -> list[Line]:
    return [
        _graph_line(row, word, drawn, _listed(row, cell), width)
        for word, each, cell in (
            ("busy ", Cell.USE_GRAPH, Cell.USE),
            ("mem  ", Cell.MEMORY_GRAPH, Cell.MEMORY),
        )
        if (drawn := row.graphs[each]).is_known or row.cells[cell] != _UNKNOWN
    ]


def _graph_line(row: Row, word: str, drawn: Graph, text: Line, width: int) -> Line:
    """Return a line with a word, a graph, and a text at the right end."""
    indent = styled(" " * (2 * row.depth)) + styled(word, Style.SOFT)
    room = width - width_of(indent) - max(width_of(text), _LEAST_TEXT) - 1
    line = styled(graph(drawn.values, room)[0], drawn.style) if room > 0 else EMPTY
    left = indent + line + styled(" ")
    return left + fitted(text, max(width - width_of(left), 0), right=True)
