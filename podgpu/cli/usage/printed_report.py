"""Prints a report or a list of holdings in the form that was asked for."""

from collections.abc import Iterable, Sequence

from pipeline.ledger.queries import HoldingRecord
from pipeline.ledger.reports import GroupedUsage, Report
from pipeline.ledger.reports.price_list import PriceList
from pipeline.model.ledger_usage import UsageWindow
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, complain, put, terminal_width
from podgpu.cli.usage.report_csv_json import (
    holdings_csv,
    holdings_document,
    json_text,
    report_csv,
    report_document,
)
from podgpu.cli.usage.report_table import holding_lines, report_lines
from podgpu.cli.usage.request import Request


def print_report(report: Report, request: Request, usage: Iterable[GroupedUsage]) -> int:
    """Print a report, and say on stderr which prices are missing; return the exit status.

    Args:
        report: the report.
        request: what was asked for.
        usage: the usage that the report was built from.
    """
    if isinstance(request.prices, PriceList):
        for note in request.prices.missing(usage):
            complain(f"podgpu: {note}")
    if request.form == "json":
        text = json_text(report_document(report))
    elif request.form == "csv":
        text = report_csv(report)
    else:
        one_device = request.device is not None
        lines = report_lines(report, terminal_width(), one_device=one_device, tz=request.tz)
        text = "\n".join(lines)
    return 0 if put(text, "podgpu usage: the report") else EXIT_UNWRITTEN


def print_holdings(window: UsageWindow, rows: Sequence[HoldingRecord], request: Request) -> int:
    """Print a list of holdings; return the exit status.

    Args:
        window: usage in the same time span.
        rows: the holdings. One more than the limit shows that there are more.
        request: what was asked for.
    """
    if len(rows) > request.limit:
        complain(
            f"podgpu: only the latest {request.limit} holdings are shown; raise --limit to see more"
        )
    shown = rows[: request.limit]
    if request.form == "json":
        text = json_text(holdings_document(window, shown))
    elif request.form == "csv":
        text = holdings_csv(window, shown)
    else:
        text = "\n".join(holding_lines(window, shown, terminal_width(), request.tz))
    return 0 if put(text, "podgpu usage: the report") else EXIT_UNWRITTEN
