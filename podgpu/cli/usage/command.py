"""The command: which file is read, and what is printed."""

import argparse
import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

from pipeline.base.clock import SystemClock
from pipeline.ledger.errors import CorruptError, ForeignError, LedgerError
from pipeline.ledger.file_open import READ_ERRORS, open_readonly, to_ledger_error
from pipeline.ledger.queries import HoldingRecord, is_empty, read_holdings, read_window
from pipeline.ledger.reports import GroupBy, GroupByError, Prices, build_report
from pipeline.model.usage_window import UsageWindow
from podgpu.cli.output import EXIT_UNWRITTEN, complain, is_terminal, lines, out, put
from podgpu.cli.usage.holding_formats import holdings_csv, holdings_document
from podgpu.cli.usage.holding_table import holding_lines
from podgpu.cli.usage.ledger_location import ledger_of
from podgpu.cli.usage.report_formats import document, json_text, report_csv
from podgpu.cli.usage.report_table import report_lines
from podgpu.cli.usage.time_span import since, utc

_LATEST_NS: Final = 1 << 62
_FAILED: Final = 1
_WRONG: Final = 2


class _AskedError(ValueError):
    """What is asked makes no sense."""


def usage(arguments: argparse.Namespace) -> int:
    """`podgpu usage`: status 1 if it can't be told now, 2 if what is asked makes no sense."""
    try:
        by = GroupBy.parse(arguments.by or "namespace")
        start_ns, end_ns = _span(arguments)
    except GroupByError as error:
        return _wrong(f"--by: {error}")
    except _AskedError as error:
        return _wrong(str(error))
    path = arguments.ledger or ledger_of(arguments.config, arguments.sink)
    most = arguments.limit if arguments.holdings else 0
    try:
        with _uncollected():
            window, rows = _read(path, start_ns, end_ns, most)
            text = _listed(window, rows, arguments) if most else _summed(window, by, arguments)
    except LedgerError as error:
        complain(lines(f"podgpu: {error}"))
        return _WRONG if isinstance(error, CorruptError | ForeignError) else _FAILED
    return 0 if put(text, "podgpu usage: what is told") else EXIT_UNWRITTEN


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no circles meanwhile: there are none, and of a year that takes two fifths of all."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _wrong(text: str) -> int:
    complain(lines(f"podgpu: {text}"))
    return _WRONG


def _span(arguments: argparse.Namespace) -> tuple[int, int]:
    now_ns = SystemClock().now().wall_ns
    start_ns = since(arguments.since, now_ns)
    # Of all there is also what a wall clock that was ahead has put behind now.
    latest_ns = _LATEST_NS if arguments.since == "all" else now_ns
    end_ns = latest_ns if arguments.until is None else since(arguments.until, now_ns)
    if start_ns >= end_ns:
        until = "now" if arguments.until is None else "--until"
        raise _AskedError(
            f"--since ({utc(start_ns)} UTC) is not before {until} ({utc(end_ns)} UTC): "
            "give an earlier one"
        )
    return start_ns, end_ns


def _read(
    path: Path, start_ns: int, end_ns: int, most: int
) -> tuple[UsageWindow, list[HoldingRecord]]:
    """Read the file; of holdings as many as are asked for, and one that says there are more.

    Raises:
        LedgerError: it can't be read, or tells nothing of that time.
    """
    try:
        with closing(open_readonly(path)) as connection:
            window = read_window(connection, start_ns, end_ns)
            rows = read_holdings(connection, start_ns, end_ns, most + 1) if most else ()
            nothing = not (window.totals or window.usage or rows)
            empty = nothing and is_empty(connection)
    except READ_ERRORS as error:
        raise to_ledger_error(str(path), error) from error
    if empty:
        mend = "see that nvml looks at who uses the devices (its options usage and processes)"
        raise LedgerError(str(path), "has no accounts yet", mend)
    if nothing:
        begun = f"from {utc(start_ns)} " if start_ns else ""
        saw = f"tells nothing of the time {begun}to {utc(end_ns)} UTC"
        mend = "--since all takes all there is" if start_ns else "give a later --until"
        raise LedgerError(str(path), saw, mend)
    return window, list(rows)


def _summed(window: UsageWindow, by: GroupBy, arguments: argparse.Namespace) -> str:
    hour, kwh = (
        None if price is None else Decimal(price)
        for price in (arguments.price_gpu_hour, arguments.price_kwh)
    )
    found = build_report(window, by, Prices(hour, kwh, arguments.currency or ""))
    if arguments.format == "json":
        return json_text(document(found))
    if arguments.format == "csv":
        return report_csv(found)
    return "\n".join(report_lines(found, _width()))


def _listed(window: UsageWindow, rows: list[HoldingRecord], arguments: argparse.Namespace) -> str:
    if len(rows) > arguments.limit:
        complain(f"podgpu: these are the latest {arguments.limit}; --limit takes more")
        del rows[arguments.limit :]
    if arguments.format == "json":
        return json_text(holdings_document(window, rows))
    if arguments.format == "csv":
        return holdings_csv(rows)
    return "\n".join(holding_lines(window, rows, _width()))


def _width() -> int:
    """Return the terminal's width; 0 without one: each name is whole, for who searches it."""
    return get_terminal_size((80, 0)).columns if is_terminal(out()) else 0
