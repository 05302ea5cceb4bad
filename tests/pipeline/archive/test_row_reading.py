"""The view of all rows: each row once, and objects that are refused by name."""

from pathlib import Path

import pytest

from pipeline.archive.compaction import compact
from pipeline.archive.database import Database
from pipeline.archive.object_merge import ParquetMerge
from pipeline.archive.object_selection import fetch_objects
from pipeline.archive.object_store import ObjectStore
from pipeline.archive.raw_object import put_rows
from pipeline.archive.row_columns import Row
from pipeline.archive.row_reading import create_rows
from pipeline.base.errors import PermanentError
from tests.pipeline.archive.rows import usage_row


class Archive:
    """An archive of rows, with its reader."""

    def __init__(self, store: ObjectStore, database: Database, work: Path) -> None:
        self.store = store
        self.database = database
        self.work = work
        self.folder = Path(store.location)

    def put(self, *rows: Row) -> str:
        return str(put_rows(self.store, self.database, rows, self.work))

    def compact(self) -> list[str]:
        """Compact, and return why days were refused."""
        merge = ParquetMerge(self.database)
        done = compact(self.store, merge, self.work, closed=lambda _: True)
        return list(done.refused.values())

    def serials(self) -> list[int]:
        """Return the serials of the view."""
        folder = self.work / f"copies-{len(list(self.work.iterdir()))}"
        folder.mkdir()
        create_rows(self.database, fetch_objects(self.store, self.database, folder))
        found = self.database.execute("SELECT serial FROM archive_rows ORDER BY serial")
        return [serial for (serial,) in found]

    def listed(self) -> list[str]:
        return sorted(self.store.keys("v1"))


@pytest.fixture
def archive(store: ObjectStore, database: Database, work: Path) -> Archive:
    return Archive(store, database, work)


def rows(first: int, last: int, **values: str | int | None) -> list[Row]:
    return [usage_row(serial, **values) for serial in range(first, last + 1)]


def test_an_empty_archive_has_no_rows(archive: Archive) -> None:
    assert archive.serials() == []
    assert archive.compact() == []


@pytest.mark.slow
def test_rows_of_raw_and_compacted_objects_are_there_once(archive: Archive) -> None:
    archive.put(*rows(1, 3))
    archive.put(*rows(4, 5, day="2026-12-01"))
    assert archive.serials() == [1, 2, 3, 4, 5]
    assert archive.compact() == []
    assert archive.serials() == [1, 2, 3, 4, 5]
    archive.put(*rows(6, 6))
    archive.put(*rows(1, 3))
    assert archive.serials() == [1, 2, 3, 4, 5, 6]
    assert archive.compact() == []
    assert archive.serials() == [1, 2, 3, 4, 5, 6]
    assert len(archive.listed()) == 2


@pytest.mark.slow
def test_equal_rows_of_different_objects_are_counted_once(archive: Archive) -> None:
    archive.put(*rows(1, 4))
    archive.put(*rows(3, 6))
    assert archive.serials() == [1, 2, 3, 4, 5, 6]
    assert archive.compact() == []
    assert archive.serials() == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("day", ["2026-11-30", "2026-12-01"])
def test_different_rows_with_one_serial_are_refused_by_name(archive: Archive, day: str) -> None:
    first = archive.put(*rows(1, 4))
    second = archive.put(*rows(4, 6, held_ns=1, day=day))
    with pytest.raises(PermanentError) as refused:
        archive.serials()
    assert first in str(refused.value)
    assert second in str(refused.value)
    assert "serial 4 of the ledger 0123456789abcdef of node node-1" in str(refused.value)


@pytest.mark.slow
def test_a_compaction_refuses_different_rows_and_changes_nothing(archive: Archive) -> None:
    first = archive.put(*rows(1, 4))
    second = archive.put(*rows(4, 6, held_ns=1))
    other = archive.put(*rows(7, 8, day="2026-12-01"))
    (refused,) = archive.compact()
    assert first in refused
    assert second in refused
    assert [key for key in archive.listed() if "nodes" in key] == sorted([first, second])
    (archive.folder / second).unlink()
    assert archive.compact() == []
    assert archive.serials() == [1, 2, 3, 4, 7, 8]
    assert not (archive.folder / other).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {"node": "node-2"},
        {"cluster": "other"},
        {"ledger": "f" * 16},
        {"day": "2026-12-01"},
        {"serial": 1},
    ],
)
def test_an_object_with_the_rows_of_another_name_is_refused(
    archive: Archive, changed: dict[str, str | int]
) -> None:
    """A node may only put objects below its own name; their rows are of this node too."""
    other = rows(4, 5)
    forged = archive.put(*[{**row, **changed} for row in other[: 1 if "serial" in changed else 2]])
    key = archive.put(*other)
    (archive.folder / forged).rename(archive.folder / key)
    archive.put(*rows(6, 7))
    with pytest.raises(PermanentError, match=f"{key} has other rows than its name states"):
        archive.serials()
    (refused,) = archive.compact()
    assert f"{key} has other rows than its name states" in refused
    assert (archive.folder / key).exists()


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(1000) + b"PAR1"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_damaged_object_is_refused_by_name(
    archive: Archive, content: bytes, *, compacted: bool
) -> None:
    key = archive.put(*rows(1, 2))
    if compacted:
        archive.compact()
        (key,) = archive.listed()
    archive.put(*rows(3, 4))
    (archive.folder / key).write_bytes(content)
    with pytest.raises(PermanentError, match=f"{key}.*restore this object or move it away"):
        archive.serials()
    (refused,) = archive.compact()
    assert key in refused


def test_a_renamed_compacted_object_is_refused(archive: Archive) -> None:
    archive.put(*rows(1, 2))
    archive.compact()
    (key,) = archive.listed()
    (archive.folder / key).rename(archive.folder / key.replace("000000001-", "000000002-"))
    with pytest.raises(PermanentError, match="is damaged or was renamed"):
        archive.serials()
