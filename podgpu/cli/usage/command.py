"""Run `podgpu usage`: read a ledger file, and print a report or a list of holdings."""

import argparse
import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Final

from pipeline.base.clock import SystemClock
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
from pipeline.ledger.reports import (
    DeviceChoiceError,
    GroupBy,
    Prices,
    build_report,
    choose_device,
)
from pipeline.model.ledger_usage import UsageWindow
from podgpu.cli.arguments import MOST_HOLDINGS
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, complain, put, terminal_width
from podgpu.cli.usage.found_ledger import found_ledger
from podgpu.cli.usage.report_csv_json import (
    holdings_csv,
    holdings_document,
    json_text,
    report_csv,
    report_document,
)
from podgpu.cli.usage.report_table import holding_lines, report_lines
from podgpu.cli.usage.time_span import since, utc

_LATEST_NS: Final = 1 << 62


def usage(arguments: argparse.Namespace) -> int:
    """`podgpu usage`: print a report or a list of holdings; return the exit status.

    Raises:
        TransientError: the file cannot be read now, or has no data for the time span.
        PermanentError: the arguments are invalid, or the file is damaged or not a ledger.
        ConfigError: the configuration that names the file is invalid.
    """
    now_ns = SystemClock().now().wall_ns
    start_ns = since(arguments.since, now_ns)
    # `all` includes later entries, which exist if the clock was ahead when they were written.
    end_ns = now_ns if start_ns else _LATEST_NS
    if arguments.until is not None:
        end_ns = since(arguments.until, now_ns)
    if start_ns >= end_ns:
        until = "now" if arguments.until is None else "--until"
        raise PermanentError(
            f"--since ({utc(start_ns)} UTC) is not before {until} ({utc(end_ns)} UTC): "
            "give an earlier --since"
        )
    path = found_ledger(arguments)
    limit = int(arguments.limit or MOST_HOLDINGS) if arguments.holdings else 0
    try:
        with _without_gc():
            window, rows = _read(path, start_ns, end_ns, limit, arguments.device)
            text = (
                _holdings_text(window, rows, limit, arguments.format)
                if limit
                else _report_text(window, _by(arguments), arguments)
            )
    except DeviceChoiceError as error:
        raise PermanentError(f"--device: {error}") from error
    except LedgerError as error:
        invalid = isinstance(error, CorruptError | ForeignError)
        raise (PermanentError if invalid else TransientError)(str(error)) from error
    return 0 if put(text, "podgpu usage: the report") else EXIT_UNWRITTEN


def _by(arguments: argparse.Namespace) -> GroupBy:
    default = GroupBy("namespace" if arguments.device is None else "pod")
    return arguments.by or default


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


def _read(
    path: Path, start_ns: int, end_ns: int, limit: int, device: str | None
) -> tuple[UsageWindow, list[HoldingRecord]]:
    """Read usage and holdings; one holding more than `limit` shows that there are more.

    Raises:
        LedgerError: the file cannot be read, or has no data for the time span.
        DeviceChoiceError: there is no such device.
    """
    with ledger_errors(path), closing(open_readonly(path)) as connection:
        window = read_window(connection, start_ns, end_ns)
        uuids = None
        if device is not None and window.totals:
            window = choose_device(window, device)
            uuids = [one.device for one in window.totals]
        rows = read_holdings(connection, start_ns, end_ns, limit + 1, uuids) if limit else ()
        no_data = not (window.totals or window.usage or rows)
        empty = no_data and is_empty(connection)
    if empty:
        raise LedgerError(str(path), "has no usage yet", FIRST_FIGURES)
    if no_data:
        from_text = f"from {utc(start_ns)} " if start_ns else ""
        observed = f"has no data for the time {from_text}to {utc(end_ns)} UTC"
        fix = "--since all covers all data" if start_ns else "give a later --until"
        raise LedgerError(str(path), observed, fix)
    return window, list(rows)


def _report_text(window: UsageWindow, by: GroupBy, arguments: argparse.Namespace) -> str:
    hour, kwh = (
        None if price is None else Decimal(price)
        for price in (arguments.price_gpu_hour, arguments.price_kwh)
    )
    found = build_report(window, by, Prices(hour, kwh, arguments.currency or ""))
    if arguments.format == "json":
        return json_text(report_document(found))
    if arguments.format == "csv":
        return report_csv(found)
    one_device = arguments.device is not None
    return "\n".join(report_lines(found, terminal_width(), one_device=one_device))


def _holdings_text(window: UsageWindow, rows: list[HoldingRecord], limit: int, form: str) -> str:
    if len(rows) > limit:
        complain(f"podgpu: only the latest {limit} holdings are shown; raise --limit to see more")
        del rows[limit:]
    if form == "json":
        return json_text(holdings_document(window, rows))
    if form == "csv":
        return holdings_csv(window, rows)
    return "\n".join(holding_lines(window, rows, terminal_width()))
