"""Lets go of what is too old, or too much. Blocks."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from pipeline.ledger.schema import HOUR_NS, invalid_value_error
from pipeline.model import Instant

_STEP: Final = 24
"""Hours that go at once where there is too much."""

_STEPS: Final = 8
"""How often that is done at a time, at most."""

_PAGES: Final = 512
"""Free pages that are given back to the file system at a time."""

_STATE_NS: Final = 7 * 24 * HOUR_NS
"""For how long the account of a device that is gone is kept to go on from."""


@dataclass(slots=True)
class Removed:
    """What was let go of.

    Attributes:
        old: rows that were too old.
        large: rows that made room.
        before_ns: nothing before this moment stands there any more; 0 where nothing was removed.
        orphans: containers and devices of which nothing was left.
    """

    old: int = 0
    large: int = 0
    before_ns: int = 0
    orphans: int = 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return how much of the file is used: pages that are free are used again first.

    Raises:
        sqlite3.Error: it can't be read.
    """
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def apply_retention(
    connection: sqlite3.Connection, now_ns: int, keep_ns: int, max_bytes: int
) -> Removed:
    """Remove what ended before what is to be kept; then whole days, the oldest first.

    What is left adds up as before. Bounded in how much it does: the rest is for the next time.

    Args:
        connection: the writer's, in no transaction.
        now_ns: the present, in nanoseconds of Unix time.
        keep_ns: how long all is kept; 0 for ever.
        max_bytes: how much the file may hold.

    Raises:
        sqlite3.Error: it can't be written.
    """
    removed = Removed()
    first = _first_hour(connection)
    oldest = (now_ns - keep_ns) // HOUR_NS
    if keep_ns and first is not None and first < oldest:
        until = min(oldest, first + _STEP * _STEPS)
        removed.old = _remove(connection, until)
        removed.before_ns = until * HOUR_NS
    for _ in range(_STEPS):
        first = _first_hour(connection)
        # The hour of now stays: podgpu goes on from it.
        if first is None or first >= now_ns // HOUR_NS or used_bytes(connection) <= max_bytes:
            break
        until = min(first + _STEP, now_ns // HOUR_NS)
        removed.large += _remove(connection, until)
        removed.before_ns = until * HOUR_NS
        # Where pods are short and have many labels, it is they that take the room.
        removed.orphans += remove_orphans(connection)
    # Not with `execute`, which ends after the first page: the statement has rows without columns.
    connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
    return removed


def forget_accounts(connection: sqlite3.Connection, now: Instant, now_ns: int, boot: str) -> None:
    """Remove the accounts of devices that are gone for long: nothing goes on from them.

    Those of this boot of the machine are as old as its monotonic clock tells: the wall clock may
    have been set.

    Args:
        connection: the writer's, in no transaction.
        now: the present.
        now_ns: the present, in nanoseconds of Unix time, as far as the wall clock is believed.
        boot: identifies this boot; empty where that isn't known.

    Raises:
        sqlite3.Error: it can't be written.
    """
    connection.execute(
        "DELETE FROM state WHERE CASE WHEN boot = ? AND boot <> '' AND json_valid(usage) "
        "THEN json_extract(usage, '$.at.mono_ns') < ? ELSE at_ns < ? END",
        (boot, now.mono_ns - _STATE_NS, now_ns - _STATE_NS),
    )


def remove_orphans(connection: sqlite3.Connection) -> int:
    """Remove containers and devices of which nothing is left; return how many. Reads all.

    Raises:
        sqlite3.Error: it can't be written.
    """
    count = 0
    for table, column in (("containers", "container"), ("devices", "device")):
        count += connection.execute(
            f"DELETE FROM {table} WHERE id NOT IN (SELECT {column} FROM hours "  # noqa: S608
            f"UNION SELECT {column} FROM holdings UNION SELECT {_OTHERS[table]})"
        ).rowcount
    return count


_OTHERS: Final = {
    "containers": "0",
    "devices": "device FROM gaps UNION SELECT device FROM device_hours",
}


def _first_hour(connection: sqlite3.Connection) -> int | None:
    found = connection.execute("SELECT MIN(hour) FROM device_hours").fetchone()[0]
    if found is not None and not isinstance(found, int):
        raise invalid_value_error("an hour that is no number")
    return found


def _remove(connection: sqlite3.Connection, hour: int) -> int:
    """Remove all that ended before an hour began, in one transaction; return the rows."""
    count, moment = 0, hour * HOUR_NS
    connection.execute("BEGIN IMMEDIATE")
    try:
        for query, value in (
            ("DELETE FROM hours WHERE hour < ?", hour),
            ("DELETE FROM device_hours WHERE hour < ?", hour),
            ("DELETE FROM holdings WHERE end_ns <= ?", moment),
            ("DELETE FROM gaps WHERE end_ns <= ?", moment),
        ):
            count += connection.execute(query, (value,)).rowcount
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return count
