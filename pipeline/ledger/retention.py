"""Removal of data that is too old, or that exceeds the size limit. All functions block."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from pipeline.ledger.late_changes import sealed_before
from pipeline.ledger.schema import HOUR_NS, invalid_value_error, transaction
from pipeline.model import Instant

_STEP: Final = 24
"""Number of hours that are removed at a time if the file is too large."""

_STEPS: Final = 8
"""Maximum number of such removals in one call."""

_PAGES: Final = 512
"""Maximum number of free pages that are returned to the file system in one call."""

_STATE_NS: Final = 7 * 24 * HOUR_NS
"""Nanoseconds for which the account of a removed device is kept to be continued."""


_CHANGED: Final = "SELECT id FROM changed_items WHERE kind = '{item}'"


@dataclass(slots=True)
class Removed:
    """Number of rows that were removed.

    Attributes:
        old: number of rows that were too old.
        large: number of rows that were removed because the file was too large.
        before_ns: all hours, and what ended, before this time was removed; in nanoseconds of Unix
            time; 0 if nothing was removed.
        orphans: number of containers and devices without remaining data.
        unsealed: number of the rows of `large` that were not sealed for the archive yet.
    """

    old: int = 0
    large: int = 0
    before_ns: int = 0
    orphans: int = 0
    unsealed: int = 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the number of used bytes of the file. Free pages do not count: SQLite reuses them.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def apply_retention(
    connection: sqlite3.Connection, now_ns: int, keep_ns: int, max_bytes: int
) -> Removed:
    """Remove data that is older than `keep_ns`; then, if the file is too large, the oldest days.

    The remaining data is consistent. One call does a limited amount of work; the next call
    continues. If the ledger has an archive, what is not sealed yet is removed only if the file is
    too large. Sealed rows that are not in the archive yet are kept in any case: they are few.

    Args:
        connection: the writer's connection; no transaction is open.
        now_ns: the current time, in nanoseconds of Unix time.
        keep_ns: nanoseconds for which data is kept; 0 means for ever.
        max_bytes: maximum size of the file, without free pages.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    removed = Removed()
    first = _first_hour(connection)
    oldest = (now_ns - keep_ns) // HOUR_NS
    sealed = sealed_before(connection)
    if sealed is not None:
        oldest = min(oldest, sealed)
    if keep_ns and first is not None and first < oldest:
        until = min(oldest, first + _STEP * _STEPS)
        removed.old = _remove(connection, until, keep_changed=True)
        removed.before_ns = until * HOUR_NS
    for _ in range(_STEPS):
        first = _first_hour(connection)
        # The current hour is kept, because podgpu adds to it.
        if first is None or first >= now_ns // HOUR_NS or used_bytes(connection) <= max_bytes:
            break
        until = min(first + _STEP, now_ns // HOUR_NS)
        removed.unsealed += 0 if sealed is None else _unsealed_rows(connection, sealed, until)
        removed.large += _remove(connection, until)
        removed.before_ns = until * HOUR_NS
        # With short-lived pods that have many labels, most of the file is containers.
        removed.orphans += remove_orphans(connection)
    # `execute` would stop after the first page, because the statement has rows without columns.
    connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")
    return removed


def forget_accounts(connection: sqlite3.Connection, now: Instant, now_ns: int, boot: str) -> None:
    """Remove the accounts of devices that were removed long ago, so that they are not continued.

    The age of an account of this boot is measured on the monotonic clock, because the wall clock
    may have been set.

    Args:
        connection: the writer's connection; no transaction is open.
        now: the current time.
        now_ns: the current time in nanoseconds of Unix time, as far as the wall clock is trusted.
        boot: the current boot id; empty if unknown.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    connection.execute(
        "DELETE FROM state WHERE CASE WHEN boot = ? AND boot <> '' AND json_valid(usage) "
        "THEN json_extract(usage, '$.at.mono_ns') < ? ELSE at_ns < ? END",
        (boot, now.mono_ns - _STATE_NS, now_ns - _STATE_NS),
    )


def remove_orphans(connection: sqlite3.Connection) -> int:
    """Remove containers and devices without data; return their number. Scans all tables.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    count = 0
    changed = "id FROM changed_items WHERE kind = 'container'"
    others = (
        "device FROM gaps UNION SELECT device FROM device_hours "
        "UNION SELECT device FROM late_device_hours"
    )
    for table, column, further in (
        ("containers", "container", changed),
        ("devices", "device", others),
    ):
        count += connection.execute(
            f"DELETE FROM {table} WHERE id NOT IN (SELECT {column} FROM hours "  # noqa: S608
            f"UNION SELECT {column} FROM holdings UNION SELECT {column} FROM late_hours "
            f"UNION SELECT {further})"
        ).rowcount
    # SQLite gives the ids of removed containers to new ones.
    connection.execute(
        "DELETE FROM sealed_items "
        "WHERE kind = 'container' AND id NOT IN (SELECT id FROM containers)"
    )
    return count


def _first_hour(connection: sqlite3.Connection) -> int | None:
    found = connection.execute("SELECT MIN(hour) FROM device_hours").fetchone()[0]
    if found is not None and not isinstance(found, int):
        raise invalid_value_error("an hour that is not a number")
    return found


def _remove(connection: sqlite3.Connection, hour: int, *, keep_changed: bool = False) -> int:
    """Remove all data that ended before an hour, in one transaction; return the number of rows.

    Args:
        connection: the writer's connection; no transaction is open.
        hour: the hour.
        keep_changed: whether to keep holdings and gaps that have to be sealed again.
    """
    count, moment = 0, hour * HOUR_NS
    with transaction(connection):
        for table in ("hours", "device_hours"):
            count += connection.execute(
                f"DELETE FROM {table} WHERE hour < ?",  # noqa: S608
                (hour,),
            ).rowcount
        for item in ("holding", "gap"):
            ended = f"end_ns < ?1 AND (NOT ?2 OR id NOT IN ({_CHANGED.format(item=item)}))"
            values = moment, keep_changed
            # Without these, the next sealing would withdraw what is removed here.
            for marks in ("sealed_items", "changed_items"):
                connection.execute(
                    f"DELETE FROM {marks} WHERE kind = '{item}' "  # noqa: S608
                    f"AND id IN (SELECT id FROM {item}s WHERE {ended})",
                    values,
                )
            count += connection.execute(f"DELETE FROM {item}s WHERE {ended}", values).rowcount  # noqa: S608
        connection.execute(
            "DELETE FROM sealed_items WHERE kind = 'container' AND day < ?", (hour // 24,)
        )
    return count


def _unsealed_rows(connection: sqlite3.Connection, sealed: int, hour: int) -> int:
    """Return how many rows that ended before an hour are not sealed, or changed since.

    Args:
        connection: the writer's connection.
        sealed: the hour before which all hours are sealed.
        hour: the hour.
    """
    count, moment = 0, hour * HOUR_NS
    for table in ("hours", "device_hours"):
        query = f"SELECT count(*) FROM {table} WHERE hour >= ? AND hour < ?"  # noqa: S608
        count += connection.execute(query, (sealed, hour)).fetchone()[0]
    for item in ("holding", "gap"):
        query = (
            f"SELECT count(*) FROM {item}s WHERE end_ns < ?1 "  # noqa: S608
            f"AND (end_ns >= ?2 OR id IN ({_CHANGED.format(item=item)}))"
        )
        count += connection.execute(query, (moment, sealed * HOUR_NS)).fetchone()[0]
    return count
