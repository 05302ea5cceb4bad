"""What of a ledger is not in its archive yet."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from pipeline.ledger.schema import HOUR_NS

OVERDUE_NS: Final = 6 * HOUR_NS
"""Nanoseconds without a successful write after which waiting rows are a problem."""

EARLIEST: Final = -(1 << 62) // HOUR_NS
"""An hour before all hours of a ledger."""

_FINAL_NS: Final = 15 * 60 * 1_000_000_000
"""Nanoseconds after its end after which an hour is closed. Usage of it that is written later is a
late gain."""


@dataclass(frozen=True, slots=True)
class ArchiveBacklog:
    """What of a ledger is not in its archive yet.

    Attributes:
        rows: number of rows of closed hours, of late gains and in the outbox.
        written_ns: when everything that could be sealed was last in the archive, in nanoseconds of
            Unix time; None if it never was.
        location: where rows were written last; empty if none were written.
    """

    rows: int
    written_ns: int | None
    location: str

    def is_overdue(self, now_ns: int) -> bool:
        """Whether rows wait, and no write has succeeded for `OVERDUE_NS`.

        Args:
            now_ns: the current time, in nanoseconds of Unix time.
        """
        return self.rows > 0 and now_ns - (self.written_ns or 0) > OVERDUE_NS


def closed_before(now_ns: int) -> int:
    """Return the hour before which all hours are closed.

    Args:
        now_ns: the current time, in nanoseconds of Unix time.
    """
    return (now_ns - _FINAL_NS) // HOUR_NS


def read_backlog(connection: sqlite3.Connection, now_ns: int) -> ArchiveBacklog | None:
    """Return what is not in the archive yet; None if the ledger never had an archive.

    Args:
        connection: a connection for reading; a ledger of an earlier version has no archive.
        now_ns: the current time, in nanoseconds of Unix time.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'archive'").fetchone():
        return None
    query = "SELECT sealed_before, written_ns, location FROM archive"
    state = connection.execute(query).fetchone()
    if state is None:
        return None
    before, written_ns, location = state
    rows, closed = 0, closed_before(now_ns)
    for table, first in (
        ("hours", before),
        ("device_hours", before),
        ("late_hours", EARLIEST),
        ("late_device_hours", EARLIEST),
    ):
        query = f"SELECT count(*) FROM {table} WHERE hour >= ? AND hour < ?"  # noqa: S608
        rows += connection.execute(query, (first, closed)).fetchone()[0]
    rows += connection.execute("SELECT count(*) FROM outbox").fetchone()[0]
    return ArchiveBacklog(rows, written_ns, location)
