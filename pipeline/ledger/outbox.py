"""The outbox of a ledger: sealed rows with serials, until they are in the archive.

The rows of an object stay the same, however often writing it is tried. All functions block.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from pipeline.ledger.schema import invalid_value_error, transaction

Row = Mapping[str, Any]
"""A row of the archive by column, without columns that are NULL: docs/archive-format.md."""

MAX_OBJECT_ROWS: Final = 20_000
"""Maximum number of rows of an object."""


@dataclass(frozen=True, slots=True)
class OutboxObject:
    """An object to be written to the archive: rows of one day with consecutive serials.

    Attributes:
        first: the first serial.
        rows: the rows, in the order of their serials.
    """

    first: int
    rows: tuple[Row, ...]


def add_rows(connection: sqlite3.Connection, first: int, rows: Iterable[dict[str, Any]]) -> int:
    """Give rows their serials, and add them to the outbox as objects. Return the next serial.

    Args:
        connection: a connection for writing, in a transaction.
        first: the serial of the first row.
        rows: the rows without serials. Those of one day follow each other.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    serial = first
    for _, same_day in groupby(rows, lambda row: row["day"]):
        begin = serial
        for row in same_day:
            if serial - begin == MAX_OBJECT_ROWS:
                _add_object(connection, begin, serial)
                begin = serial
            text = json.dumps(row | {"serial": serial}, sort_keys=True, separators=(",", ":"))
            connection.execute("INSERT INTO outbox VALUES (?, ?)", (serial, text))
            serial += 1
        _add_object(connection, begin, serial)
    return serial


def _add_object(connection: sqlite3.Connection, first: int, beyond: int) -> None:
    connection.execute("INSERT INTO outbox_objects VALUES (?, ?)", (first, beyond - 1))


def first_object(connection: sqlite3.Connection) -> OutboxObject | None:
    """Return the object that is to be written first; None if the outbox is empty.

    Raises:
        sqlite3.Error: the file cannot be read, or rows of the object are missing or invalid.
    """
    with transaction(connection, "BEGIN"):
        found = connection.execute(
            "SELECT first, last FROM outbox_objects ORDER BY first LIMIT 1"
        ).fetchone()
        if found is None:
            return None
        first, last = found
        query = "SELECT row FROM outbox WHERE serial BETWEEN ? AND ? ORDER BY serial"
        texts = connection.execute(query, (first, last)).fetchall()
    try:
        rows = tuple([json.loads(text) for (text,) in texts])
        serials = [row["serial"] for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_value_error(repr(error)) from error
    if serials != list(range(first, last + 1)):
        raise invalid_value_error(f"the outbox lacks rows with serials from {first} to {last}")
    return OutboxObject(first, rows)


def remove_object(connection: sqlite3.Connection, written: OutboxObject) -> None:
    """Remove an object that is in the archive, with its rows, from the outbox.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    with transaction(connection):
        connection.execute("DELETE FROM outbox_objects WHERE first = ?", (written.first,))
        connection.execute(
            "DELETE FROM outbox WHERE serial BETWEEN ? AND ?",
            (written.first, written.first + len(written.rows) - 1),
        )
