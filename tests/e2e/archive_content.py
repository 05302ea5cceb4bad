"""Compares an archive with the ledgers from which it was written."""

import os
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.archive.database import open_database
from pipeline.archive.object_selection import fetch_objects
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.row_columns import hour_text
from pipeline.archive.row_reading import create_rows
from tests.e2e.s3_server import S3Server
from tests.pipeline.ledger.archive_world import (
    Row,
    World,
    amounts_of,
    device_sums,
    subject_of,
    valid_facts,
    valid_items,
)

_HOLDING = ("end_ns", "start_ns", "counted_ns", "gap_ns", "held_ns", "busy_ns", "energy_mj", "xids")


def read_rows(location: str, server: S3Server, folder: Path) -> dict[str, list[Row]]:
    """Return the rows of an archive by node, in the order of their serials, without NULLs."""
    os.environ.update(server.environment())
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(dir=folder) as copies, open_database(folder) as database:
        store = ObjectStore(location)
        create_rows(database, fetch_objects(store, database, Path(copies)))
        names = [name for name, *_ in database.execute("DESCRIBE archive_rows")]
        for values in database.execute("SELECT * FROM archive_rows ORDER BY node, serial"):
            row = {n: _text(v) for n, v in zip(names, values, strict=True) if v is not None}
            found.setdefault(row["node"], []).append(row)
    return found


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return value if isinstance(value, int) else str(value)


def check_archive(
    location: str, server: S3Server, worlds: Mapping[str, World], folder: Path
) -> None:
    """Check that an archive has exactly what was reported to the ledgers.

    Args:
        location: the archive.
        server: its server.
        worlds: the ledgers, and what was reported to them, by name of the node.
        folder: for temporary files.

    Raises:
        AssertionError: they differ.
    """
    found = read_rows(location, server, folder)
    assert sorted(found) == sorted(worlds)
    for name, world in worlds.items():
        rows = found[name]
        assert [row["serial"] for row in rows] == list(range(1, len(rows) + 1)), name
        expected = {(hour_text(h), uuid, who): x for (h, uuid, who), x in world.hours.items()}
        assert amounts_of(rows) == expected, name
        sums = device_sums(rows)
        for key, one in sums.items():
            parts = [value for each, value in expected.items() if each[:2] == key]
            assert one["accounted_ns"] == sum(part[0] for part in parts), (name, key)
            assert one.get("busy_ns", 0) == sum(part[1] or 0 for part in parts), (name, key)
            assert one.get("energy_mj", 0) == sum(part[2] or 0 for part in parts), (name, key)
        gaps = {(hour_text(h), uuid): length for (h, uuid), length in world.gaps.items()}
        assert {key: one["gap_ns"] for key, one in sums.items()} == gaps, name
        _check_items(name, world, rows)
        facts = valid_facts(rows)
        for row in rows:
            if row["row"] == "usage" and "pod" in row:
                assert (row["day"], subject_of(row["pod"])) in facts, (name, row)


def _check_items(name: str, world: World, rows: list[Row]) -> None:
    query = f"SELECT id, {', '.join(_HOLDING)} FROM holdings WHERE end_ns IS NOT NULL"  # noqa: S608
    held = {own_id: tuple(values) for own_id, *values in world.connection.execute(query)}
    holdings = valid_items(rows, "holding")
    archived = {own_id: tuple(row.get(c) for c in _HOLDING) for own_id, row in holdings.items()}
    assert archived == held, name
    assert {own_id: (one[0], one[4]) for own_id, one in held.items()} == world.ended, name
    query = "SELECT id, start_ns, end_ns, reason FROM gaps"
    gaps = {own_id: tuple(values) for own_id, *values in world.connection.execute(query)}
    found = valid_items(rows, "gap")
    assert {
        own_id: (row["start_ns"], row["end_ns"], row["reason"]) for own_id, row in found.items()
    } == gaps, name
