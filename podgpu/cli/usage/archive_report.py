"""Prints the usage of several nodes, from archives and ledger files."""

import argparse

from pipeline.archive.report.ended_items import list_holdings
from pipeline.archive.report.fleet_usage import FleetUsage, open_usage
from pipeline.archive.report.row_sources import open_rows
from pipeline.base.errors import TransientError
from podgpu.cli.terminal_text import complain
from podgpu.cli.usage.options import FOCUS
from podgpu.cli.usage.partial_nodes import partial_nodes
from podgpu.cli.usage.printed_report import print_holdings, print_report
from podgpu.cli.usage.request import Request


def print_archive_usage(arguments: argparse.Namespace, request: Request) -> int:
    """Print a report, a list of holdings or an export; return the exit status.

    Raises:
        TransientError: a location cannot be read now, or has no data for the time span.
        PermanentError: a location or an object is refused, or there are too many groups.
    """
    if request.form == FOCUS:
        return _print_focus(arguments, request)
    with open_usage(
        arguments.locations,
        (request.start_ns, request.end_ns),
        clusters=arguments.clusters or (),
        device=request.device or "",
        changes=request.prices.changes,
        now_ns=request.now_ns,
        by=request.by,
    ) as usage:
        _note_foreign(usage.sources.foreign)
        _check_data(usage, arguments, request)
        if request.device is None and (partial := partial_nodes(usage.window)):
            complain(f"podgpu: {partial}")
        if request.limit:
            span = request.start_ns, request.end_ns
            rows = list_holdings(usage.sources, *span, request.limit + 1, usage.device_numbers)
            return print_holdings(usage.window, rows, request)
        groups = usage.groups(request.by)
        return print_report(usage.report(request.by, request.prices, groups), request, groups)


def _print_focus(arguments: argparse.Namespace, request: Request) -> int:
    from pipeline.archive.focus_rows import FocusExport
    from pipeline.ledger.reports.price_list import PriceList
    from podgpu.cli.usage.focus_csv import print_focus

    prices = request.prices
    assert isinstance(prices, PriceList)  # noqa: S101 - `options` refuses --format focus without it
    with open_rows(
        arguments.locations,
        request.start_ns,
        clusters=arguments.clusters or (),
        now_ns=request.now_ns,
    ) as sources:
        _note_foreign(sources.foreign)
        hourly = arguments.charge_period == "hour"
        export = FocusExport(request.start_ns, request.end_ns, request.tz, hourly, prices)
        return print_focus(sources.database, sources.days, export)


def _note_foreign(foreign: tuple[str, ...]) -> None:
    if foreign:
        others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        complain(
            f"podgpu: {foreign[0]}{others} is no object of an archive, and is ignored: move it to "
            "another place"
        )


def _check_data(usage: FleetUsage, arguments: argparse.Namespace, request: Request) -> None:
    """Check that there is usage in the span.

    Raises:
        TransientError: there is none.
    """
    if usage.window.totals:
        return
    where = ", ".join(arguments.locations)
    clusters = f" of cluster {', '.join(arguments.clusters)}" if arguments.clusters else ""
    raise TransientError(
        f"{where}: no usage{clusters} {request.span_text}; --since all "
        "covers all data. A node writes an hour to its archive 15 minutes after the end of it"
    )
