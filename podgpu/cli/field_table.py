"""`podgpu fields`: print the catalogue of fields as a table, as Markdown or as JSON."""

import argparse
from collections.abc import Iterable, Sequence

import orjson

from pipeline.fields import CATALOGUE, LABELS, Field

COLUMNS = (
    "name",
    "group",
    "type",
    "unit",
    "metric",
    "metric unit",
    "1.x metric",
    "further names",
    "OpenTelemetry",
    "call",
    "tier",
    "since",
    "attributes",
    "MIG",
    "meaning",
)

_CODE = frozenset({"name", "metric", "1.x metric", "further names", "OpenTelemetry", "call"})
_SEPARATOR = ", "


def fields(arguments: argparse.Namespace) -> int:
    """`podgpu fields`: print all fields and labels."""
    rows = [_row(field) for field in (*CATALOGUE, *LABELS)]
    if arguments.format == "json":
        table = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        print(orjson.dumps(table, option=orjson.OPT_INDENT_2).decode())
    elif arguments.format == "markdown":
        print("\n".join(markdown()))
    else:
        _print_table([COLUMNS, *rows])
    return 0


def markdown() -> Iterable[str]:
    """Yield the lines of the table in `docs/fields.md`."""
    yield _line(COLUMNS)
    yield _line(["---"] * len(COLUMNS))
    for field in (*CATALOGUE, *LABELS):
        cells = zip(COLUMNS, _row(field), strict=True)
        yield _line([_code(cell, column) for column, cell in cells])


def _row(field: Field) -> tuple[str, ...]:
    label = field.type == "label"
    attrs = "".join(f"{{{name}={value}}}" for name, value in field.otel_attrs)
    return (
        field.name,
        field.group,
        field.type,
        field.unit,
        (field.dcgm or field.name) if label else field.metric,
        _metric_unit(field),
        field.dcgm_1x,
        _SEPARATOR.join(field.aliases),
        f"{field.otel}{attrs}",
        field.call,
        field.tier.value,
        field.since,
        _SEPARATOR.join(field.attrs),
        "yes" if field.mig else "",
        field.help,
    )


def _metric_unit(field: Field) -> str:
    if field.dcgm_divisor == 1:
        return field.metric_unit
    return f"{field.metric_unit} ({field.unit} / {field.dcgm_divisor})"


def _code(cell: str, column: str) -> str:
    if not cell or column not in _CODE:
        return cell
    words = cell.split(_SEPARATOR) if column == "further names" else [cell]
    return _SEPARATOR.join(f"`{word}`" for word in words)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
