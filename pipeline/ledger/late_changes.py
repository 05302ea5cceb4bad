"""Changes of the ledger behind the hours that are sealed for the archive. All functions block.

Sealed rows never change. What sealed hours gain, and which sealed holdings, gaps and containers
change, is recorded in the transaction of the change. The next sealing makes further rows of it.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from pipeline.ledger.schema import HOUR_NS

Item = Literal["holding", "gap", "container"]
"""What has one valid row in the archive, and is sealed again when it changes."""

_MARK_POD: Final = """
INSERT OR IGNORE INTO changed_items SELECT 'container', c.id FROM containers AS c
WHERE c.id = ?5 AND (c.owner_kind, c.owner_name, c.labels, c.labels_cut) <> (?1, ?2, ?3, ?4)
    AND EXISTS (SELECT 1 FROM sealed_items WHERE kind = 'container' AND id = c.id)
"""
_MARK: Final = """
INSERT OR IGNORE INTO changed_items SELECT '{item}', id FROM {item}s WHERE id = ?1 AND end_ns < ?2
UNION SELECT '{item}', id FROM sealed_items WHERE kind = '{item}' AND id = ?1
"""


def sealed_before(connection: sqlite3.Connection) -> int | None:
    """Return the hour before which all hours are sealed; None if there was never an archive.

    Raises:
        sqlite3.Error: the file cannot be read.
    """
    row = connection.execute("SELECT sealed_before FROM archive").fetchone()
    return None if row is None else int(row[0])


def mark_changed_pod(connection: sqlite3.Connection, columns: Sequence[object]) -> None:
    """Note that the facts of a sealed container change, if they do. Call it before the change.

    Args:
        connection: the writer's connection, in a transaction.
        columns: the new owner's kind and name, labels and number of labels left out; and the
            container's id.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    connection.execute(_MARK_POD, columns)


def mark_changed(
    connection: sqlite3.Connection,
    item: Literal["holding", "gap"],
    ids: Iterable[str],
    before: int,
) -> None:
    """Note which holdings or gaps have to be sealed again. Call it after the change.

    They are those that are sealed, and those that end before the hour `before`.

    Args:
        connection: the writer's connection, in a transaction.
        item: the kind of `ids`.
        ids: what was written or removed.
        before: the hour before which all hours are sealed.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    rows = [(own_id, before * HOUR_NS) for own_id in ids]
    connection.executemany(_MARK.format(item=item), rows)
