"""Format reports and lists of holdings as JSON and CSV, in base units and with full precision."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final

import msgspec

from pipeline.fields.xid_catalogue import XIDS
from pipeline.ledger.queries import HoldingRecord
from pipeline.ledger.reports import Prices, Report, Row
from pipeline.model import PartialRef, split_error_ns
from pipeline.model.ledger_usage import DeviceTotal, UsageWindow
from podgpu.cli.terminal_text import terminal_safe
from podgpu.cli.usage.report_heading import gap_counts
from podgpu.cli.usage.time_span import exact

VERSION: Final = 3
"""Version of the JSON document. It increases when a program for the old format would be misled.

In version 1, unattributed held time was the time for which no container held a device, also in the
total. In version 2, free and unknown time and their cost were in `unattributed`.
"""

_CSV_COLUMNS: Final = (
    "held_seconds",
    "busy_seconds",
    "idle_seconds",
    "energy_joules",
    "holdings",
    "cost",
    "currency",
    "incomplete",
    "free_seconds",
    "unknown_seconds",
    "allocated_ratio",
    "used_ratio",
    "busy_error_seconds",
)
_PPM: Final = 1_000_000
_JSON: Final = msgspec.json.Encoder(decimal_format="number")

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that a spreadsheet evaluates as a formula:
https://owasp.org/www-community/attacks/CSV_Injection"""


def _decimal(value: int | None, digits: int) -> Decimal | None:
    """Return a number divided by 10 ** `digits`, exactly; None for an unknown value."""
    if value is None:
        return None
    # Not with `scaleb`, which rounds to the precision of the decimal context.
    whole, rest = divmod(abs(value), 10**digits)
    text = f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".")
    return Decimal(f"-{text}" if value < 0 else text)


_seconds: Final = partial(_decimal, digits=9)  # from nanoseconds
_joules: Final = partial(_decimal, digits=3)  # from millijoules


def _head(window: UsageWindow) -> dict[str, Any]:
    return {
        "version": VERSION,
        "sample_data": window.sample_data or None,
        "node": window.node if window.node or not window.has_places else None,
        "clusters": sorted({one.cluster for one in window.totals if one.cluster}),
        "nodes": len({(one.cluster, one.node) for one in window.totals}),
        "since": exact(window.start_ns),
        "until": exact(window.end_ns),
    }


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON document. docs/reports.md describes its keys."""
    window, prices = report.window, report.prices
    fields = report.by.fields
    return _head(window) | {
        "by": str(report.by),
        "price_gpu_hour": prices.gpu_hour if isinstance(prices, Prices) else None,
        "price_kwh": prices.kwh if isinstance(prices, Prices) else None,
        "currency": prices.currency or None,
        "rows": [
            dict(zip(fields, row.key.parts, strict=True)) | _figures(row)
            for row in report.rows
            if row.key is not None
        ],
        "free": _figures(report.free),
        "unknown": _figures(report.unknown),
        "unattributed": _figures(report.unattributed),
        "total": _figures(report.total),
        "devices": [
            {
                **_place(window, total),
                "device": total.device,
                "device_name": total.name or None,
                "gpu_index": total.index,
                "accounted_seconds": _seconds(total.accounted_ns),
                "gap_seconds": _seconds(total.gap_ns),
                "unknown_seconds": _seconds(total.unknown_ns),
                "busy_seconds": _seconds(total.busy_ns),
                "energy_joules": _joules(total.energy_mj),
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
        "gap_counts": dict(gap_counts(window)),
    }


def _place(window: UsageWindow, one: DeviceTotal | HoldingRecord) -> dict[str, str | None]:
    """Return cluster and node; nothing in a report on one node without them."""
    if not window.has_places:
        return {}
    return {"cluster": one.cluster or None, "node": one.node or None}


def _figures(row: Row) -> dict[str, Any]:
    sums = {
        "busy_seconds": row.busy_ns,
        "idle_seconds": row.idle_ns,
        "energy_joules": row.energy_mj,
    }
    incomplete = [name for name, each in sums.items() if each.partial]
    return {
        "held_seconds": _seconds(row.held_ns),
        "busy_seconds": _seconds(row.busy_ns.known),
        "busy_error_seconds": _seconds(row.busy_error_ns),
        "idle_seconds": _seconds(row.idle_ns.known),
        "energy_joules": _joules(row.energy_mj.known),
        "holdings": row.holdings,
        "cost": row.cost,
        "free_seconds": _seconds(row.free_ns),
        "unknown_seconds": _seconds(row.unknown_ns),
        "allocated_ratio": _ratio(row.allocated),
        "used_ratio": _ratio(row.used),
        "incomplete": incomplete + ["cost"] * row.cost_partial,
    }


def _ratio(part: Fraction | None) -> Decimal | None:
    """Return a fraction rounded to millionths; None for an unknown value."""
    return None if part is None else _decimal(round(part * _PPM), 6)


def json_text(value: Mapping[str, Any]) -> str:
    """Return a document as JSON, without characters that control a terminal."""
    text = msgspec.json.format(_JSON.encode(_encodable(value)), indent=2).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text)


def _encodable(value: Any) -> Any:
    """Return a value in which `?` replaces lone surrogates, which UTF-8 cannot encode."""
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

    A text that a spreadsheet would evaluate as a formula gets an apostrophe in front: names of
    workloads and devices come from users and are not validated.

    Args:
        heading: names of the columns.
        rows: cells of each row: texts and numbers; None for an unknown value.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in heading])
    writer.writerows([[csv_cell(cell) for cell in row] for row in rows])
    return out.getvalue().removesuffix("\n")


def csv_cell(cell: object) -> str:
    """Return the text of a cell, as `csv_text` writes it."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return f"{cell:f}" if isinstance(cell, Decimal) else str(cell)
    text = f"'{cell}" if cell.startswith(_FORMULA) else cell
    return terminal_safe(text)


def report_csv(report: Report) -> str:
    """Return the report as CSV: the groups, `free`, `unknown`, `unattributed` and `total`."""
    fields = report.by.fields
    kinds = [(row, "group") for row in report.rows]
    kinds += zip(report.without_container, ("free", "unknown", "unattributed"), strict=True)
    kinds.append((report.total, "total"))
    rows: list[list[object]] = []
    for row, kind in kinds:
        values = _figures(row)
        values["incomplete"] = " ".join(values["incomplete"])
        values["currency"] = report.prices.currency if row.cost is not None else None
        parts = (None,) * len(fields) if row.key is None else row.key.parts
        rows.append([kind, *parts, *(values[name] for name in _CSV_COLUMNS)])
    heading = ["row", *fields, *_CSV_COLUMNS]
    if report.by.kind == "device":
        indexes = {total.device: total.index for total in report.window.totals}
        heading.append("gpu_index")
        place = heading.index("device")
        rows = [[*row, indexes.get(str(row[place]))] for row in rows]
    return _table(report.window, heading, rows)


def _table(window: UsageWindow, heading: list[str], rows: list[list[object]]) -> str:
    """Return a table as CSV; with sample data, each row says so in a further column."""
    if window.sample_data:
        heading = [*heading, "sample_data"]
        rows = [[*row, window.sample_data] for row in rows]
    return csv_text(heading, rows)


def holdings_document(window: UsageWindow, holdings: Sequence[HoldingRecord]) -> dict[str, Any]:
    """Return the holdings as a JSON document. docs/reports.md describes its keys."""
    rows = [
        _place(window, one) | {key: value(one) for key, value in _HOLDING.items()}
        for one in holdings
    ]
    return _head(window) | {"holdings": rows}


def holdings_csv(window: UsageWindow, holdings: Sequence[HoldingRecord]) -> str:
    """Return the holdings as CSV, each on one line. XID errors are written `CODE:COUNT`."""
    columns = _HOLDING | {"xids": lambda one: " ".join(f"{code}:{n}" for code, n in one.xids)}
    rows = [
        [*_place(window, one).values(), *(value(one) for value in columns.values())]
        for one in holdings
    ]
    place = ["cluster", "node"] if window.has_places else []
    return _table(window, [*place, *columns], rows)


def _xid(code: int, count: int) -> dict[str, Any]:
    known = XIDS.get(code)
    return {
        "code": code,
        "count": count,
        "meaning": None if known is None else known.meaning,
        "action": None if known is None else known.action,
    }


def _namespace(subject: PartialRef) -> str | None:
    # Only pods are in a namespace. For a job, it is the Slurm cluster.
    return (subject.namespace or None) if subject.kind == "pod" else None


_HOLDING: Final[dict[str, Callable[[HoldingRecord], Any]]] = {
    "namespace": lambda one: _namespace(one.container.subject),
    "pod": lambda one: one.container.subject.pod or None,
    "container": lambda one: one.container.subject.container or None,
    "pod_uid": lambda one: one.container.subject.uid or None,
    "owner_kind": lambda one: one.container.owner_kind or None,
    "owner_name": lambda one: one.container.owner_name or None,
    "device": lambda one: one.device,
    "start": lambda one: exact(one.start_ns),
    "end": lambda one: None if one.end_ns is None else exact(one.end_ns),
    "until": lambda one: exact(one.until_ns),
    "source": lambda one: one.source or None,
    "evidence": lambda one: one.evidence or None,
    "counted_seconds": lambda one: _seconds(one.counted_ns),
    "gap_seconds": lambda one: _seconds(one.gap_ns),
    "held_seconds": lambda one: _seconds(one.held_ns),
    "busy_seconds": lambda one: _seconds(one.busy_ns),
    "energy_joules": lambda one: _joules(one.energy_mj),
    "memory_peak_bytes": lambda one: one.memory_peak_bytes,
    "memory_mean_bytes": lambda one: one.memory_mean_bytes,
    "busy_mean_ratio": lambda one: _decimal(one.busy_mean_ppm, 6),
    "busy_peak_ratio": lambda one: _decimal(one.busy_peak_ppm, 6),
    "xids": lambda one: [_xid(code, count) for code, count in one.xids],
    "holder_kind": lambda one: one.container.subject.kind,
    "busy_error_seconds": lambda one: _seconds(split_error_ns(one.contested_ns, one.switching_ns)),
}
"""Keys of a holding in JSON, each with a function that returns its value."""
