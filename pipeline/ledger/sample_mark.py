"""The mark of a ledger with sample data: usage that a program made up instead of measuring it."""

import sqlite3
from typing import Final

_KEY: Final = "sample_data"
"""Key of the table `meta`. Its value names what made the data."""


def mark_as_sample(connection: sqlite3.Connection, maker: str) -> None:
    """Mark a ledger as sample data.

    Args:
        connection: the writer's connection.
        maker: what made the data, such as `podgpu demo`.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_KEY, maker))


def sample_maker(connection: sqlite3.Connection) -> str:
    """Return what made the sample data in a ledger; empty if the data was measured.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    return str(found[0]) if found else ""
