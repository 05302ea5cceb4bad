"""Prints the usage of one node, from its ledger file."""

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.file_open import (
    CorruptError,
    ForeignError,
    LedgerError,
    ledger_errors,
    open_readonly,
)
from pipeline.ledger.queries import (
    FIRST_FIGURES,
    HoldingRecord,
    is_empty,
    read_holdings,
    read_window,
)
from pipeline.ledger.reports import choose_device, report_of_groups
from pipeline.ledger.reports.window_groups import grouped
from pipeline.model.ledger_usage import UsageWindow
from podgpu.cli.usage.printed_report import print_holdings, print_report
from podgpu.cli.usage.request import Request


def print_ledger_usage(path: Path, request: Request) -> int:
    """Print a report or a list of holdings from a ledger file; return the exit status.

    Raises:
        TransientError: the file cannot be read now, or has no data for the time span.
        PermanentError: the file is damaged or not a ledger.
        DeviceChoiceError: there is no such device.
    """
    try:
        with _without_gc():
            window, rows = _read(path, request)
            if request.limit:
                return print_holdings(window, rows, request)
            usage = grouped(window, request.by)
            report = report_of_groups(window, request.by, request.prices, usage)
            return print_report(report, request, usage)
    except LedgerError as error:
        invalid = isinstance(error, CorruptError | ForeignError)
        raise (PermanentError if invalid else TransientError)(str(error)) from error


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection, which takes 40 % of the time for a year and finds no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(path: Path, request: Request) -> tuple[UsageWindow, list[HoldingRecord]]:
    """Read usage and holdings; one holding more than the limit shows that there are more.

    Raises:
        LedgerError: the file cannot be read, or has no data for the time span.
        DeviceChoiceError: there is no such device.
    """
    start_ns, end_ns, limit = request.start_ns, request.end_ns, request.limit
    with ledger_errors(path), closing(open_readonly(path)) as connection:
        window = read_window(connection, start_ns, end_ns, request.prices.changes)
        uuids = None
        if request.device is not None and window.totals:
            window = choose_device(window, request.device)
            uuids = [one.device for one in window.totals]
        rows = read_holdings(connection, start_ns, end_ns, limit + 1, uuids) if limit else ()
        no_data = not (window.totals or window.usage or rows)
        empty = no_data and is_empty(connection)
    if empty:
        raise LedgerError(str(path), "has no usage yet", FIRST_FIGURES)
    if no_data:
        observed = f"has no data for the time {request.span_text}"
        fix = "--since all covers all data" if start_ns else "give a later --until"
        raise LedgerError(str(path), observed, fix)
    return window, list(rows)
