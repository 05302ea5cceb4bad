"""`podgpu fields`: print the catalogue of fields as a table, as Markdown or as JSON."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from pipeline.base import safe_text
from pipeline.fields import CATALOGUE, LABELS, Field, called
from pipeline.fields.name_answers import NameAnswers
from podgpu.cli.terminal_text import Column, laid_out, terminal_width

_CODE = frozenset({"name", "metric", "1.x metric", "further names", "OpenTelemetry", "call"})
_SEPARATOR = ", "
_KEPT = ("name", "metric", "meaning", "unit", "type", "MIG", "group")
"""Columns that a narrow terminal still shows, the most important first."""

_LEAST = 25
"""Minimum width to which names and sentences are cut: three columns fit in 80 characters."""


def fields(arguments: argparse.Namespace) -> int:
    """`podgpu fields`: print all fields and labels, or those with the given names.

    If no field has a name, the fields with a name that contains it are printed.

    Returns:
        The exit status: 1 if no field has one of the names.
    """
    names: list[str] = arguments.names
    found = {name: list(called(name)) or list(_containing(name)) for name in names}
    asked = {field.name for each in found.values() for field in each}
    shown = [field for field in (*CATALOGUE, *LABELS) if not names or field.name in asked]
    rows = [_row(field) for field in shown]
    if arguments.format == "json":
        print(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode())
    elif arguments.format == "markdown":
        print("\n".join(markdown(shown)))
    elif rows:
        print("\n".join(table(rows, terminal_width())))
    answers = NameAnswers()
    unknown = [name for name in names if not found[name]]
    for name in unknown:
        print(f"{safe_text.line(name, 80)} {answers.about(name)}", file=sys.stderr)
    return 1 if unknown else 0


def _containing(part: str) -> Iterator[Field]:
    """Yield the fields with a name that contains a text, in upper or lower case."""
    wanted = part.casefold()
    for field in (*CATALOGUE, *LABELS):
        names = (field.name, field.metric, field.dcgm, field.dcgm_1x, field.dcgm_base, field.otel)
        if any(wanted in name.casefold() for name in (*names, *field.aliases)):
            yield field


def table(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the lines of the table of fields.

    Args:
        rows: the cells of each field by the title of their column.
        width: width of the terminal; 0 if there is none, so that nothing is cut or omitted.
    """
    columns = [
        Column(title, name=True, rank=at, least=_LEAST)
        for title in rows[0]
        for at in [_KEPT.index(title) if title in _KEPT else len(_KEPT)]
    ]
    return laid_out(columns, [list(row.values()) for row in rows], width)


def markdown(fields: Iterable[Field] = (*CATALOGUE, *LABELS)) -> Iterable[str]:
    """Yield the lines of the table in `docs/fields.md`: fields and labels."""
    rows = [_row(field) for field in fields]
    if not rows:
        return
    yield _line(rows[0])
    yield _line(["---"] * len(rows[0]))
    for row in rows:
        yield _line(_code(cell, column) for column, cell in row.items())


def _row(field: Field) -> dict[str, str]:
    label = field.type == "label"
    attrs = "".join(f"{{{name}={value}}}" for name, value in field.otel_attrs)
    return {
        "name": field.name,
        "group": field.group,
        "type": field.type,
        "unit": field.unit,
        "metric": (field.dcgm or field.name) if label else field.metric,
        "metric unit": _metric_unit(field),
        "1.x metric": field.dcgm_1x,
        "further names": _SEPARATOR.join(filter(None, (*field.aliases, field.dcgm_base))),
        "OpenTelemetry": f"{field.otel}{attrs}",
        "call": field.call,
        "tier": field.tier.value,
        "since": field.since,
        "attributes": _SEPARATOR.join(field.attrs),
        "MIG": "yes" if field.mig else "",
        "meaning": field.help,
    }


def _metric_unit(field: Field) -> str:
    if field.dcgm_divisor == 1:
        return field.metric_unit
    return f"{field.metric_unit} ({field.unit} / {field.dcgm_divisor})"


def _code(cell: str, column: str) -> str:
    if not cell or column not in _CODE:
        return cell
    words = cell.split(_SEPARATOR) if column == "further names" else [cell]
    return _SEPARATOR.join(f"`{word}`" for word in words)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
