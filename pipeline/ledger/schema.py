"""The tables of the ledger's file, and how a file is told from others."""

import sqlite3
from functools import cache
from types import MappingProxyType
from typing import Final

HOUR_NS: Final = 3600 * 1_000_000_000
"""Nanoseconds in an hour; the number of an hour is that of whole hours since the Unix epoch."""

UNATTRIBUTED_ID: Final = 0
"""In the place of a container: what belongs to none."""

APPLICATION_ID: Final = 0x70646C67
"""`pdlg`; the field of SQLite's header that tells whose a file is."""

VERSION: Final = 2
"""Of the tables, in `user_version`, and again in `meta` as `tables`.

A single byte of the header has the one; where the other differs, the file is damaged.

A higher one is another file for all that know this one alone: they refuse it and leave it be. A
podgpu that raises it brings the statements that lead from each version before to it, and the file
is brought there when it is opened to be written. What can be added without that, such as an index
or a key of `meta`, doesn't raise it.

Version 1, of podgpu 0.1.0, told holdings and gaps apart by their start on the wall clock.
"""

HOLDINGS: Final = """
CREATE TABLE holdings (
    id TEXT PRIMARY KEY,
    device INTEGER NOT NULL,
    container INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER,
    until_ns INTEGER NOT NULL,
    source TEXT NOT NULL,
    evidence TEXT NOT NULL,
    counted_ns INTEGER NOT NULL,
    gap_ns INTEGER NOT NULL,
    held_ns INTEGER NOT NULL,
    busy_ns INTEGER,
    energy_mj INTEGER,
    memory_peak_bytes INTEGER,
    memory_mean_bytes INTEGER,
    busy_mean_ppm INTEGER,
    busy_peak_ppm INTEGER,
    xids TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
"""
GAPS: Final = """
CREATE TABLE gaps (
    id TEXT PRIMARY KEY,
    device INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
"""
INDEXES: Final = MappingProxyType(
    {
        "holdings_by_end": "CREATE INDEX holdings_by_end ON holdings (end_ns, start_ns);",
        "gaps_by_end": "CREATE INDEX gaps_by_end ON gaps (end_ns);",
    }
)

TABLES: Final = f"""
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE devices (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    profile TEXT NOT NULL,
    gpu TEXT NOT NULL
);
CREATE TABLE containers (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    pod TEXT NOT NULL,
    container TEXT NOT NULL,
    uid TEXT NOT NULL,
    owner_kind TEXT NOT NULL DEFAULT '',
    owner_name TEXT NOT NULL DEFAULT '',
    labels TEXT NOT NULL DEFAULT '{{}}',
    labels_cut INTEGER NOT NULL DEFAULT 0,
    UNIQUE (uid, namespace, pod, container)
);
{HOLDINGS}
CREATE TABLE hours (
    hour INTEGER NOT NULL,
    device INTEGER NOT NULL,
    container INTEGER NOT NULL,
    held_ns INTEGER NOT NULL,
    busy_ns INTEGER,
    energy_mj INTEGER,
    PRIMARY KEY (hour, device, container)
) WITHOUT ROWID;
CREATE TABLE device_hours (
    hour INTEGER NOT NULL,
    device INTEGER NOT NULL,
    accounted_ns INTEGER NOT NULL,
    gap_ns INTEGER NOT NULL,
    busy_ns INTEGER,
    energy_mj INTEGER,
    unknown_ns INTEGER,
    PRIMARY KEY (hour, device)
) WITHOUT ROWID;
{GAPS}
{"".join(INDEXES.values())}
CREATE TABLE state (
    device TEXT PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    usage TEXT NOT NULL,
    boot TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
"""

WRITE_VERSION: Final = f"INSERT OR REPLACE INTO meta VALUES ('tables', '{VERSION}');"  # noqa: S608

_ADDED: Final = frozenset(
    {("holdings", "id"), ("gaps", "id"), ("device_hours", "unknown_ns"), ("state", "boot")}
)
"""The columns that version 1 lacks."""


@cache
def columns(version: int = VERSION) -> frozenset[tuple[str, str]]:
    """Return the columns of all tables of a version, as (table, column)."""
    with sqlite3.connect(":memory:") as made:
        made.executescript(TABLES)
        found = columns_of(made)
    made.close()
    return found if version >= VERSION else found - _ADDED


def columns_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return the columns that a file has.

    Raises:
        sqlite3.Error: it can't be read.
    """
    query = (
        "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
        "WHERE t.type = 'table'"
    )
    return frozenset((str(table), str(column)) for table, column in connection.execute(query))


def stored_version(connection: sqlite3.Connection, found: frozenset[tuple[str, str]]) -> str | None:
    """Return the version that a file has in `meta`; None where it has none, as of podgpu 0.1.0.

    Args:
        connection: to the file.
        found: its columns.

    Raises:
        sqlite3.Error: it can't be read.
    """
    if not {("meta", "key"), ("meta", "value")} <= found:
        return None
    told = connection.execute("SELECT value FROM meta WHERE key = 'tables'").fetchone()
    return None if told is None else str(told[0])


def invalid_value_error(what: str) -> sqlite3.DatabaseError:
    """Return the error of a file whose values make no sense: SQLite takes any type anywhere."""
    found = sqlite3.DatabaseError(f"what stands there makes no sense: {what}")
    found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return found
