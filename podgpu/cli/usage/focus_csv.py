"""Prints a FOCUS export as CSV: docs/focus.md."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pipeline.archive.database import Database
from pipeline.archive.focus_rows import FocusExport, columns, create_focus, focus_rows
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, complain, put
from podgpu.cli.usage.report_csv_json import csv_lines


def print_focus(database: Database, days: Mapping[date, str], export: FocusExport) -> int:
    """Print the rows of an export on stdout, and notes on stderr; return the exit status.

    Args:
        database: a database.
        days: by UTC day, the SQL query of its rows.
        export: what to export.

    Raises:
        TransientError: there is no usage in the span.
        PermanentError: a model, or a cluster, has no price at some time.
    """
    for note in create_focus(database, days, export):
        complain(f"podgpu: {note}")
    if not put(csv_lines([columns(database)]), "podgpu usage: the export"):
        return EXIT_UNWRITTEN
    for part in focus_rows(database, export):
        cells = ([_cell(value) for value in row] for row in part)
        if not put(csv_lines(cells), "podgpu usage: the export"):
            return EXIT_UNWRITTEN
    return 0


def _cell(value: Any) -> str | Decimal | None:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return Decimal(text.rstrip("0").rstrip(".")) if "." in text else value
    return None if value is None else str(value)
