"""Prints a FOCUS export as CSV: docs/focus.md."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from pipeline.archive.database import Database
from pipeline.archive.focus_rows import FocusExport, columns, create_focus, focus_texts
from podgpu.cli.terminal_text import EXIT_UNWRITTEN, complain, put
from podgpu.cli.usage.report_csv_json import csv_cell


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
    kinds = columns(database)
    texts = [place for place, kind in enumerate(kinds.values()) if kind == "VARCHAR"]
    if not put(_lines([list(kinds)]), "podgpu usage: the export"):
        return EXIT_UNWRITTEN
    for part in focus_texts(database, export):
        rows = [list(row) for row in part]
        for row in rows:
            for place in texts:  # numbers may begin with a minus sign
                if row[place] is not None:
                    row[place] = csv_cell(row[place])
        if not put(_lines(rows), "podgpu usage: the export"):
            return EXIT_UNWRITTEN
    return 0


def _lines(rows: Iterable[Sequence[str | None]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().removesuffix("\n")
