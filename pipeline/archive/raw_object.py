"""Writes rows of one ledger and one day as a raw object."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pipeline.archive import object_key
from pipeline.archive.database import Database
from pipeline.archive.object_key import RawKey
from pipeline.archive.object_store import Store
from pipeline.archive.parquet_file import write_rows
from pipeline.archive.row_columns import Row, canonical_line


def put_rows(store: Store, database: Database, rows: Sequence[Row], folder: Path) -> RawKey:
    """Write rows as one object, and return its key. Equal rows have the same key.

    If the rows were written before, they are written again. The store needs only the right to put
    objects below `v1/nodes/CLUSTER/NODE/`.

    Args:
        store: the archive.
        database: a database with one thread.
        rows: 1 to `MAX_ROWS` rows of one ledger and one day, with consecutive serials.
        folder: for a temporary file, which is removed.

    Raises:
        ValueError: the rows are not as described.
        TransientError: the store, or a disk, fails.
        PermanentError: the store refuses the object.
    """
    lines = [canonical_line(row) for row in rows]
    key = _key_of(rows, lines)
    target = folder / f"{key.first}-{key.digest}.parquet"
    # What a killed process left.
    target.unlink(missing_ok=True)
    target.with_suffix(".jsonl").unlink(missing_ok=True)
    try:
        write_rows(database, lines, target)
        store.put(str(key), target)
    finally:
        target.unlink(missing_ok=True)
    return key


def _key_of(rows: Sequence[Row], lines: Sequence[bytes]) -> RawKey:
    if not 1 <= len(rows) <= object_key.MAX_ROWS:
        raise ValueError(f"an object has 1 to {object_key.MAX_ROWS} rows, not {len(rows)}")
    origins = {
        tuple(str(row[name]) for name in ("cluster", "node", "day", "ledger")) for row in rows
    }
    if len(origins) != 1:
        raise ValueError(f"the rows of an object are of one ledger and one day, not {len(origins)}")
    serials = [int(row["serial"] or 0) for row in rows]
    if serials != list(range(max(serials[0], 1), serials[0] + len(rows))):
        raise ValueError(f"the serials after {serials[0]} are not consecutive")
    cluster, node, day, ledger = next(iter(origins))
    digest = object_key.digest(lines)
    key = RawKey(cluster, node, date.fromisoformat(day), ledger, serials[0], serials[-1], digest)
    if object_key.parse(str(key)) != key:
        raise ValueError(f"{key} is no key of an object")
    return key
