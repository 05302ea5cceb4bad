"""Draws the rows of devices as a table, for terminals that are wide enough. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from podgpu.cli.terminal_text import fit, terminal_safe, wrapped
from podgpu.cli.terminal_text import width as wide
from podgpu.cli.top.block_graph import graph
from podgpu.cli.top.names import shortened
from podgpu.cli.top.row import Cell, Kind, Row
from podgpu.cli.top.styled_text import (
    EMPTY,
    Line,
    Style,
    fitted,
    joined,
    plain_text,
    styled,
    width_of,
)

LEAST: Final = 72
"""Minimum width of a terminal that shows a table."""

_SEPARATE: Final = 112
"""Width from which on every value has its own column."""

_POWER_GRAPH: Final = 160
"""Width from which on there is a graph of the power."""

_HIGH: Final = 140
"""Width from which on graphs have two lines: the second one is beside the first holder."""

_INDENT: Final = 2
_LEAST_DETAIL: Final = 6
_GRAPHS: Final = (Cell.USE_GRAPH, Cell.MEMORY_GRAPH, Cell.POWER_GRAPH)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        cells: what the column shows: the first of these cells that a row has.
        title: the heading.
        width: width in characters.
        right: whether cells are aligned to the right.
    """

    cells: tuple[Cell, ...]
    title: str
    width: int
    right: bool = True


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a table, and how they are drawn.

    Attributes:
        columns: the columns; the first one has the names.
        gap: blanks between columns.
        high: whether graphs have two lines.
    """

    columns: tuple[Column, ...]
    gap: int
    high: bool


@cache
def layout_of(width: int, *, graphs: bool = True) -> Layout:
    """Return the layout for a width, at least `LEAST`.

    Args:
        width: width of the terminal.
        graphs: whether the table has graphs.
    """
    separate, high = width >= _SEPARATE, graphs and width >= _HIGH
    figures = {
        Cell.USE: Column((Cell.USE,), "BUSY", 7 if high else 4),
        Cell.MEMORY: Column((Cell.MEMORY,), "MEMORY GiB", 11),
    }
    if separate:
        figures |= {
            Cell.POWER: Column((Cell.POWER,), "POWER", 9),
            Cell.TEMPERATURE: Column((Cell.TEMPERATURE,), "TEMP", 5),
            Cell.ENERGY: Column((Cell.ENERGY,), "ENERGY", 10),
            Cell.SHARE: Column((Cell.SHARE,), "SHARE", 10),
            Cell.HELD: Column((Cell.HELD,), "FOR", 8),
        }
    else:
        figures |= {
            Cell.POWER: Column((Cell.POWER, Cell.ENERGY), "POWER", 9),
            Cell.TEMPERATURE: Column((Cell.HELD, Cell.TEMPERATURE), "TEMP,FOR", 8),
        }
    gap = 2 if width >= _HIGH else 1
    taken = sum(column.width + gap for column in figures.values())
    name, *widths = _shares(width - taken, width, gap) if graphs else [width - taken]
    columns = [Column((Cell.NAME,), "GPU, HELD BY", name, right=False)]
    placed = dict(zip(_GRAPHS, widths, strict=False))
    for cell, column in figures.items():
        before = {
            Cell.USE: Cell.USE_GRAPH,
            Cell.MEMORY: Cell.MEMORY_GRAPH,
            Cell.POWER: Cell.POWER_GRAPH,
        }.get(cell)
        if before is not None and placed.get(before):
            columns.append(Column((before,), "", placed[before], right=False))
        columns.append(column)
    return Layout(tuple(columns), gap, high)


def _shares(room: int, width: int, gap: int) -> list[int]:
    """Return the widths of the names and of each graph, which share the room that is left."""
    if width < _SEPARATE:
        memory = 0 if width < 80 else 6 + (width - 80) // 4
        use = 9 if width < 80 else 10 + (width - 80) // 4
        return [room - use - gap - (memory + gap if memory else 0), use, memory]
    # What is more than the names need goes to the graphs.
    name = min(30 + (width - _SEPARATE) // 3, 50)
    graphs = [45, 30, 25] if width >= _POWER_GRAPH else [60, 40]
    left = room - name - gap * len(graphs)
    widths = [left * part // 100 for part in graphs]
    return [name + left - sum(widths), *widths]


def heading(layout: Layout, span: str) -> Line:
    """Return the line with the headings of the columns.

    Args:
        layout: the layout.
        span: the time that the graphs show.
    """
    titles = [
        column.title or (span if column.cells == (Cell.USE_GRAPH,) else "")
        for column in layout.columns
    ]
    parts = [
        fit(title, column.width, right=column.right)
        for title, column in zip(titles, layout.columns, strict=True)
    ]
    return styled((" " * layout.gap).join(parts), Style.HEADING)


def table_lines(rows: Sequence[Row], layout: Layout, width: int) -> list[tuple[Row, Line]]:
    """Return the lines of the rows of one GPU, each with its row. A note can have several lines.

    Args:
        rows: the rows.
        layout: the layout.
        width: width of the terminal.
    """
    found: list[tuple[Row, Line]] = []
    beside: Row | None = None
    for at, row in enumerate(rows):
        if row.kind is Kind.NOTE:
            found += ((row, line) for line in note_lines(row, width))
            continue
        high = layout.high and row.kind is Kind.GPU
        found.append((row, _line(row, layout, row, 0 if high else None)))
        if beside is not None:
            found[-1] = row, _line(row, layout, beside, 1)
            beside = None
        found += ((row, line) for line in name_below(row, found[-1][1], width))
        if high:
            following = rows[at + 1] if at + 1 < len(rows) else None
            if following is not None and following.kind is Kind.CONTAINER:
                beside = row
            else:
                found.append((row, _line(Row(Kind.CONTAINER, 1), layout, row, 1)))
    return found


def name_below(row: Row, line: Line, width: int) -> list[Line]:
    """Return the lines with the whole name of a row, if it is requested and was cut in its line."""
    name = terminal_safe(row.full_name)
    if not row.whole or name in plain_text(line):
        return []
    return note_lines(Row(Kind.NOTE, row.depth + 1, remark=styled(name, Style.SOFT)), width)


def note_lines(row: Row, width: int) -> list[Line]:
    """Return the lines of a note, which is wrapped between words."""
    indent = _INDENT * row.depth
    return [
        styled(" " * indent) + styled(text, span.style)
        for span in row.remark
        for text in wrapped(span.text, max(width - indent, 2))
    ]


def _line(row: Row, layout: Layout, drawn: Row, part: int | None) -> Line:
    """Return the line of a row.

    Args:
        row: the row.
        layout: the layout.
        drawn: the row whose graphs are drawn.
        part: the line of graphs of two lines; None for graphs of one line.
    """
    parts: list[Line] = []
    first, *others = layout.columns
    room = first.width
    for at, column in enumerate(others):
        cell = column.cells[0]
        if cell in _GRAPHS:
            found = drawn.graphs.get(cell)
            # The name of an instance with that of its only holder is long too.
            long = row.kind is Kind.INSTANCE and Cell.HELD in row.cells and not layout.high
            is_empty = found is None or not found.is_known
            if (is_empty or long) and at == 0 and part is None:
                # Names are longer than those of GPUs, which have a graph there.
                room += layout.gap + column.width
                continue
            lines = graph(
                () if found is None else found.values, column.width, 1 if part is None else 2
            )
            text = lines[part or 0]
            parts.append(styled(text, Style.PLAIN if found is None else found.style))
        else:
            cells = (row.cells[each] for each in column.cells if each in row.cells)
            content = next(cells, EMPTY)
            over = width_of(content) - column.width
            if over > 0 and column.cells == (Cell.USE,) and not parts:
                # A busy part with its error takes blanks after the name, which has no graph here.
                room -= over
                parts.append(content)
                continue
            if over > 0:
                # A number and its unit need no blank between them.
                content = styled("".join(plain_text(content).split()), content[0].style)
            parts.append(fitted(content, column.width, right=column.right))
    return joined([fitted(name_line(row, room), room), *parts], layout.gap)


def name_line(row: Row, room: int) -> Line:
    """Return the name of a row in at most the given width, with its remark."""
    indent = styled(" " * min(_INDENT * row.depth, room))
    room -= width_of(indent)
    if row.kind is Kind.GPU:
        name = styled(fit(row.name, min(wide(terminal_safe(row.name)), room)), Style.STRONG)
        rest = max(room - width_of(name) - 1, 0)
        remark = fitted(row.remark, min(width_of(row.remark), rest))
        rest -= width_of(remark) + (1 if remark else 0)
        detail = terminal_safe(row.detail)
        if rest >= min(_LEAST_DETAIL, wide(detail)) and detail:
            name += styled(f" {fit(detail, min(wide(detail), rest))}")
        return joined([name, remark] if remark else [name])
    remark = fitted(row.remark, min(width_of(row.remark), room))
    room -= width_of(remark) + (1 if remark else 0)
    lead = terminal_safe(row.lead)
    if lead:
        lead = f"{fit(lead, min(wide(lead), max(room, 0)))} "
    name = styled(lead + shortened(row.name, row.detail, max(room - wide(lead), 0)))
    return indent + joined([part for part in (name, remark) if part])
