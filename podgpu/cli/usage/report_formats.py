"""The report for programs: JSON and CSV, in base units, with all digits."""

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
"""Of the document's shape. It grows when a reader of the old shape would be misled.

In version 1 the held time of nobody was the time for which nobody held a device, also in the total.
"""

_FIGURES: Final = ("held_seconds", "busy_seconds", "idle_seconds", "energy_joules")
_MORE: Final = ("free_seconds", "unknown_seconds", "allocated_ratio", "used_ratio")
_PPM: Final = 1_000_000
_JSON: Final = msgspec.json.Encoder(decimal_format="number")

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""With what a text begins that a spreadsheet reckons with, instead of showing it:
https://owasp.org/www-community/attacks/CSV_Injection"""


def seconds(ns: int | None) -> Decimal | None:
    """Return nanoseconds in seconds, with all digits."""
    return None if ns is None else _decimal(ns, 9)


def joules(mj: int | None) -> Decimal | None:
    """Return millijoules in joules, with all digits."""
    return None if mj is None else _decimal(mj, 3)


def _decimal(value: int, digits: int) -> Decimal:
    # By hand: `scaleb` rounds to the context's digits.
    sign, number = (1, -value) if value < 0 else (0, value)
    whole, rest = divmod(number, 10**digits)
    text = f"{rest:0{digits}d}".rstrip("0")
    return Decimal(f"{'-' if sign else ''}{whole}{f'.{text}' if text else ''}")


def document(report: Report) -> dict[str, Any]:
    """Return the report; docs/reports.md tells of each key."""
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
    lacking = [name for name, each in zip(_FIGURES[1:], sums, strict=True) if each.partial]
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
        "incomplete": lacking + ["cost"] * row.cost_partial,
    }


def _ratio(part: Fraction | None) -> Decimal | None:
    """Return a part of a whole, rounded to millionths."""
    return None if part is None else _decimal(round(part * _PPM), 6)


def json_text(found: Mapping[str, Any]) -> str:
    """Return a document as JSON, in which nothing stands that a terminal would act on."""
    text = msgspec.json.format(_JSON.encode(_encodable(found)), indent=2).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text)


def _encodable(found: Any) -> Any:
    """Return it without halves of characters, which no encoding has."""
    if isinstance(found, str):
        return found if found.isascii() else found.encode("utf-8", "replace").decode()
    if isinstance(found, Mapping):
        return {key: _encodable(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_encodable(each) for each in found]
    return found


def _escaped(character: str) -> str:
    """Return a character within a text of JSON as it may be written instead."""
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def csv_text(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as CSV (RFC 4180, but for the end of a line).

    A text with which a spreadsheet would reckon has an apostrophe in front: names of workloads and
    devices are checked by nobody.

    Args:
        heading: names of the columns.
        rows: texts and figures; None for what isn't known.
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
    """Return the report as CSV; the column `row` tells groups from what is nobody's, and total."""
    fields = report.by.fields
    heading = ["row", *fields, *_FIGURES, "holdings", "cost", "currency", "incomplete", *_MORE]
    kinds = [(row, "group") for row in report.rows]
    kinds += [(report.unattributed, "unattributed"), (report.total, "total")]
    rows: list[list[object]] = []
    for row, kind in kinds:
        figures = _figures(row)
        parts = (None,) * len(fields) if row.key is None else row.key.parts
        currency = report.prices.currency if row.cost is not None else None
        rows.append(
            [
                kind,
                *parts,
                *(figures[name] for name in (*_FIGURES, "holdings", "cost")),
                currency,
                " ".join(figures["incomplete"]),
                *(figures[name] for name in _MORE),
            ]
        )
    return csv_text(heading, rows)
