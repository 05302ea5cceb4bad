"""The tables of the ledger file, and its version."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Final

HOUR_NS: Final = 3600 * 1_000_000_000
"""Nanoseconds in an hour. Hours are numbered from the Unix epoch."""

UNATTRIBUTED_ID: Final = 0
"""Container id of unattributed usage."""

START_KEY: Final = "start_ns"
"""Key of `meta` with the start of the first counted time, in nanoseconds of Unix time."""

APPLICATION_ID: Final = 0x70646C67
"""`pdlg`, the value of SQLite's application id, which identifies the kind of file."""

VERSION: Final = 3
"""Version of the tables, stored in `user_version` and in `meta` as `tables`.

`user_version` is a byte of the header without a checksum. If the two differ, the file is damaged.

A podgpu that supports only lower versions rejects the file and does not change it. If you raise the
version, add a migration from each earlier version; it runs when the file is opened for writing.
Additions that old versions can ignore, such as an index or a key of `meta`, do not raise it.

Version 1, of podgpu 0.1.0, identified holdings and gaps by their start on the wall clock. Version 2
had no tables for the archive, and none of `CONTEST_COLUMNS`.
"""

LEDGER_ID_KEY: Final = "ledger_id"
"""Key of `meta` with the random id of the ledger, 16 hexadecimal digits."""

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
    xids TEXT NOT NULL DEFAULT '{}',
    contested_ns INTEGER,
    switching_ns INTEGER
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
_OF_HOURS: Final = """(
    hour INTEGER NOT NULL,
    device INTEGER NOT NULL,
    container INTEGER NOT NULL,
    held_ns INTEGER NOT NULL,
    busy_ns INTEGER,
    energy_mj INTEGER,
    contested_ns INTEGER,
    switching_ns INTEGER,
    PRIMARY KEY (hour, device, container)
) WITHOUT ROWID;"""
"""Columns of `hours`, and of `late_hours`."""

_OF_DEVICE_HOURS: Final = """(
    hour INTEGER NOT NULL,
    device INTEGER NOT NULL,
    accounted_ns INTEGER NOT NULL,
    gap_ns INTEGER NOT NULL,
    busy_ns INTEGER,
    energy_mj INTEGER,
    unknown_ns INTEGER,
    PRIMARY KEY (hour, device)
) WITHOUT ROWID;"""
"""Columns of `device_hours`, and of `late_device_hours`."""

ARCHIVE_TABLES: Final = f"""
CREATE TABLE archive (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 0),
    sealed_before INTEGER NOT NULL,
    next_serial INTEGER NOT NULL,
    location TEXT NOT NULL DEFAULT '',
    written_ns INTEGER
);
CREATE TABLE late_hours {_OF_HOURS}
CREATE TABLE late_device_hours {_OF_DEVICE_HOURS}
CREATE TABLE sealed_items (
    kind TEXT NOT NULL,
    id NOT NULL,
    day INTEGER NOT NULL,
    PRIMARY KEY (kind, id, day)
) WITHOUT ROWID;
CREATE TABLE changed_items (
    kind TEXT NOT NULL,
    id NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE outbox_objects (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
);
CREATE TABLE outbox (
    serial INTEGER PRIMARY KEY,
    row TEXT NOT NULL
);
"""
"""Tables of what is written to the archive. All are empty until `podgpu archive` runs.

- `archive`: one row. Hours before `sealed_before` are sealed: their amounts have serials.
- `late_hours`, `late_device_hours`: what sealed hours have gained since.
- `sealed_items`: the sealed holdings and gaps with the UTC day of their end, and the containers
  with each day for which their facts were sealed. A day is a number of days since the Unix epoch.
- `changed_items`: holdings, gaps and containers that changed after that.
- `outbox`: sealed rows that are not in the archive yet, as JSON; `outbox_objects`: the first and
  the last serial of each object to be written.
"""

WRITE_LEDGER_ID: Final = (
    "INSERT OR IGNORE INTO meta "  # noqa: S608
    f"VALUES ('{LEDGER_ID_KEY}', lower(hex(randomblob(8))));"
)

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
CREATE TABLE hours {_OF_HOURS}
CREATE TABLE device_hours {_OF_DEVICE_HOURS}
{GAPS}
{"".join(INDEXES.values())}
{ARCHIVE_TABLES}
CREATE TABLE state (
    device TEXT PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    usage TEXT NOT NULL,
    boot TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
"""

WRITE_VERSION: Final = f"INSERT OR REPLACE INTO meta VALUES ('tables', '{VERSION}');"  # noqa: S608

CONTEST_COLUMNS: Final = tuple(
    [
        (table, column)
        for table in ("hours", "holdings")
        for column in ("contested_ns", "switching_ns")
    ]
)
"""Columns that version 2 does not have. NULL: a part of the busy time was counted without them."""

_ADDED: Final = frozenset(
    {("holdings", "id"), ("gaps", "id"), ("device_hours", "unknown_ns"), ("state", "boot")}
)
"""Columns that version 1 does not have."""

_ARCHIVE_TABLE_NAMES: Final = frozenset(re.findall(r"CREATE TABLE (\w+)", ARCHIVE_TABLES))
"""Tables that version 2 does not have."""


@cache
def columns(version: int = VERSION) -> frozenset[tuple[str, str]]:
    """Return the columns of all tables of a version, as (table, column)."""
    with sqlite3.connect(":memory:") as made:
        made.executescript(TABLES)
        found = columns_of(made)
    made.close()
    if version < 3:
        found = frozenset([each for each in found if each[0] not in _ARCHIVE_TABLE_NAMES])
        found -= {*CONTEST_COLUMNS}
    return found - _ADDED if version < 2 else found


def columns_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Return the columns of all tables of a file, as (table, column).

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    query = (
        "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
        "WHERE t.type = 'table'"
    )
    return frozenset((str(table), str(column)) for table, column in connection.execute(query))


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit the changes that are made in the context; roll them back after any exception."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def invalid_value_error(what: str) -> sqlite3.DatabaseError:
    """Return the error for an invalid value. SQLite does not enforce the types of columns."""
    found = sqlite3.DatabaseError(f"the file contains an invalid value: {what}")
    found.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return found
