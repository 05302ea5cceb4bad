"""Format the report as JSON and CSV, in base units and with full precision."""

import csv
import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from pipeline.ledger.reports import Report, Row
from podgpu.cli.terminal_text import terminal_safe
from podgpu.cli.usage.time_span import exact

VERSION: Final = 2
"""Version of the document's format. It increases when a reader of the old format would be misled.

In version 1, unattributed held time was the time in which no container held a device, also in the
total.
"""

_COLUMNS: Final = ("held_seconds", "busy_seconds", "idle_seconds", "energy_joules")
_MORE_COLUMNS: Final = ("free_seconds", "unknown_seconds", "allocated_ratio", "used_ratio")
_PPM: Final = 1_000_000
_JSON: Final = msgspec.json.Encoder(decimal_format="number")

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Characters at the start of a cell that a spreadsheet evaluates as a formula:
https://owasp.org/www-community/attacks/CSV_Injection"""


def seconds(ns: int | None) -> Decimal | None:
    """Convert nanoseconds to seconds, with full precision."""
    return None if ns is None else _decimal(ns, 9)


def joules(mj: int | None) -> Decimal | None:
    """Convert millijoules to joules, with full precision."""
    return None if mj is None else _decimal(mj, 3)


def _decimal(value: int, digits: int) -> Decimal:
    # Not with `scaleb`, which rounds to the precision of the decimal context.
    sign, number = (1, -value) if value < 0 else (0, value)
    whole, rest = divmod(number, 10**digits)
    text = f"{rest:0{digits}d}".rstrip("0")
    return Decimal(f"{'-' if sign else ''}{whole}{f'.{text}' if text else ''}")


def document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document. docs/reports.md describes its keys."""
    window, prices = report.window, report.prices
    fields = report.by.fields
    return {
        "version": VERSION,
        "node": window.node,
        "since": exact(window.start_ns),
        "until": exact(window.end_ns),
        "by": str(report.by),
        "price_gpu_hour": prices.gpu_hour,
        "price_kwh": prices.kwh,
        "currency": prices.currency or None,
        "rows": [
            dict(zip(fields, row.key.parts, strict=True)) | _figures(row)
            for row in report.rows
            if row.key is not None
        ],
        "unattributed": _figures(report.unattributed),
        "total": _figures(report.total),
        "devices": [
            {
                "device": total.device,
                "device_name": total.name or None,
                "accounted_seconds": seconds(total.accounted_ns),
                "gap_seconds": seconds(total.gap_ns),
                "unknown_seconds": seconds(total.unknown_ns),
                "busy_seconds": seconds(total.busy_ns),
                "energy_joules": joules(total.energy_mj),
            }
            for total in window.totals
        ],
        "gaps": [
            {
                "device": gap.device,
                "since": exact(gap.start_ns),
                "until": exact(gap.end_ns),
                "reason": gap.reason,
            }
            for gap in window.gaps
        ],
    }


def _figures(row: Row) -> dict[str, Any]:
    sums = (row.busy_ns, row.idle_ns, row.energy_mj)
    incomplete = [name for name, each in zip(_COLUMNS[1:], sums, strict=True) if each.partial]
    return {
        "held_seconds": seconds(row.held_ns),
        "busy_seconds": seconds(row.busy_ns.known),
        "idle_seconds": seconds(row.idle_ns.known),
        "energy_joules": joules(row.energy_mj.known),
        "holdings": row.holdings,
        "cost": row.cost,
        "free_seconds": seconds(row.free_ns),
        "unknown_seconds": seconds(row.unknown_ns),
        "allocated_ratio": _ratio(row.allocated),
        "used_ratio": _ratio(row.used),
        "incomplete": incomplete + ["cost"] * row.cost_partial,
    }


def _ratio(part: Fraction | None) -> Decimal | None:
    """Return a fraction rounded to millionths."""
    return None if part is None else _decimal(round(part * _PPM), 6)


def json_text(value: Mapping[str, Any]) -> str:
    """Return a document as JSON, without characters that control a terminal."""
    text = msgspec.json.format(_JSON.encode(_encodable(value)), indent=2).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text)


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which cannot be encoded in UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(each) for each in value]
    return value


def _escaped(character: str) -> str:
    """Return the JSON escape sequence of a character."""
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def csv_text(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as CSV (RFC 4180, but with LF as the line ending).

    Text that a spreadsheet would evaluate as a formula gets an apostrophe in front, because names
    of workloads and devices are not validated.

    Args:
        heading: names of the columns.
        rows: texts and numbers; None for an unknown value.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in heading])
    writer.writerows([[_cell(cell) for cell in row] for row in rows])
    return out.getvalue().removesuffix("\n")


def _cell(cell: object) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return f"{cell:f}" if isinstance(cell, Decimal) else str(cell)
    text = f"'{cell}" if cell.startswith(_FORMULA) else cell
    return terminal_safe(text)


def report_csv(report: Report) -> str:
    """Return the report as CSV. The column `row` is group, unattributed or total."""
    fields = report.by.fields
    heading = [
        "row",
        *fields,
        *_COLUMNS,
        "holdings",
        "cost",
        "currency",
        "incomplete",
        *_MORE_COLUMNS,
    ]
    kinds = [(row, "group") for row in report.rows]
    kinds += [(report.unattributed, "unattributed"), (report.total, "total")]
    rows: list[list[object]] = []
    for row, kind in kinds:
        values = _figures(row)
        parts = (None,) * len(fields) if row.key is None else row.key.parts
        currency = report.prices.currency if row.cost is not None else None
        rows.append(
            [
                kind,
                *parts,
                *(values[name] for name in (*_COLUMNS, "holdings", "cost")),
                currency,
                " ".join(values["incomplete"]),
                *(values[name] for name in _MORE_COLUMNS),
            ]
        )
    return csv_text(heading, rows)
