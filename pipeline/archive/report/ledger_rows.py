"""Writes the rows of a ledger file in the archive's form, so that a report can read both."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pipeline.archive.database import Database
from pipeline.archive.parquet_file import write_rows
from pipeline.archive.row_columns import canonical_line
from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.archive_rows import RowMaker
from pipeline.ledger.file_open import (
    CorruptError,
    ForeignError,
    LedgerError,
    ledger_errors,
    open_readonly,
)
from pipeline.ledger.schema import HOUR_NS, LEDGER_ID_KEY, transaction

_DAY_HOURS: Final = 24

_HOURS: Final = """
SELECT hour, device, container, held_ns, busy_ns, energy_mj, contested_ns, switching_ns FROM hours
WHERE hour >= ? ORDER BY hour
"""
_DEVICE_HOURS: Final = """
SELECT hour, device, accounted_ns, gap_ns, busy_ns, energy_mj, unknown_ns FROM device_hours
WHERE hour >= ? ORDER BY hour
"""
_ENDED: Final = "SELECT id FROM {item}s WHERE end_ns >= ? ORDER BY end_ns"


def write_ledger_rows(
    path: Path, start_ns: int, database: Database, folder: Path
) -> dict[date, list[Path]]:
    """Write the rows of a ledger, also of its open hour, as Parquet files.

    A ledger does not know its cluster, so the name of the cluster is empty.

    Args:
        path: the ledger file. It is only read.
        start_ns: the time from whose UTC day on rows are needed, in nanoseconds of Unix time.
        database: a database.
        folder: an existing, empty folder for the files.

    Returns:
        The files by UTC day.

    Raises:
        TransientError: the file cannot be read now, or the folder cannot be written.
        PermanentError: the file is damaged, is not a ledger, or has an older or newer version.
    """
    files: dict[date, list[Path]] = {}
    first = start_ns // HOUR_NS // _DAY_HOURS * _DAY_HOURS
    try:
        with (
            ledger_errors(path),
            closing(open_readonly(path)) as connection,
            transaction(connection, "BEGIN"),
        ):
            _check_version(connection, path)
            for number, (day, lines) in enumerate(_lines_by_day(connection, first)):
                target = folder / f"{number:06}.parquet"
                write_rows(database, lines, target)
                files.setdefault(date.fromisoformat(day), []).append(target)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        text = f"contains an invalid value: {error!r}"
        raise PermanentError(str(CorruptError(str(path), text))) from error
    except OSError as error:
        raise TransientError(
            f"{path}: its rows cannot be written to a temporary file: {error}; free space in this "
            "folder, or set TMPDIR to another one"
        ) from error
    except LedgerError as error:
        invalid = isinstance(error, CorruptError | ForeignError)
        raise (PermanentError if invalid else TransientError)(str(error)) from error
    return files


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("SELECT 1 FROM meta WHERE key = ?", (LEDGER_ID_KEY,)).fetchone()
    if found is None:
        raise ForeignError(
            str(path),
            "was written by an earlier podgpu, and has no id",
            "let podgpu write to it once; podgpu usage --ledger also reads it as it is",
        )


def _lines_by_day(
    connection: sqlite3.Connection, first: int
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the rows of the ledger by day, in several passes over the days."""
    (node,) = connection.execute("SELECT value FROM meta WHERE key = 'node'").fetchone() or ("",)
    maker = RowMaker(connection, "", str(node))
    serial = 0

    def numbered(rows: Iterator[Mapping[str, Any]]) -> Iterator[bytes]:
        nonlocal serial
        for row in rows:
            serial += 1
            yield canonical_line({**row, "serial": serial})

    for rows in (
        _amounts(connection, maker, "usage", _HOURS, first),
        _amounts(connection, maker, "device", _DEVICE_HOURS, first),
        _items(connection, maker, "holding", first),
        _items(connection, maker, "gap", first),
    ):
        for day, same_day in groupby(rows, lambda row: str(row["day"])):
            yield day, numbered(same_day)
    days = sorted(maker.container_days, key=lambda pair: (pair[1], pair[0]))
    facts = (maker.facts(container, day) for container, day in days)
    for day, same_day in groupby(facts, lambda row: str(row["day"])):
        yield day, numbered(same_day)


def _amounts(
    connection: sqlite3.Connection, maker: RowMaker, kind: str, query: str, first: int
) -> Iterator[Mapping[str, Any]]:
    for row in connection.execute(query, (first,)):
        yield maker.amounts(kind, row)


def _items(
    connection: sqlite3.Connection, maker: RowMaker, item: str, first: int
) -> Iterator[Mapping[str, Any]]:
    ids: Sequence[tuple[str]] = connection.execute(
        _ENDED.format(item=item), (first * HOUR_NS,)
    ).fetchall()
    for (own_id,) in ids:
        found = maker.item(item, own_id)
        if found is not None:
            yield found
