"""R4: damaged bytes in a ledger are reported as damage, and never end the program that opens it."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.base.clock import SystemClock
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_open import (
    READ_ERRORS,
    CorruptError,
    ForeignError,
    LedgerError,
    open_readonly,
    to_ledger_error,
)
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.ledger.schema import VERSION
from pipeline.ledger.write_batch import Batch
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from tests.pipeline.ledger.open_ledger import FOREVER, Snapshots, folder_in_memory
from tests.pipeline.ledger.test_account_state import account_with_holding
from tests.pipeline.ledger.test_migrations import OLD

SNAPSHOT = Snapshots()
HEADER = 100
"""Bytes of SQLite's header."""
DEVICE = account_with_holding().device
VERSION_AT = 63
"""Offset of the last byte of `user_version` in the header."""


def file_at(path: Path) -> LedgerFile:
    options = Options(path=path, commit_interval=Duration.parse("1s"))
    return LedgerFile(options, "node-1", SystemClock().now)


def write_ledger(path: Path) -> bytes:
    """Return the bytes of a ledger with accounts and holdings."""
    file = file_at(path)
    file.open()
    file.put(example_batch())
    file.close()
    return path.read_bytes()


def example_batch() -> Batch:
    usage = account_with_holding()
    accumulator = LedgerAccumulator(usage.at, {})
    accumulator.add_snapshot(SNAPSHOT(usage))
    return accumulator.take_batch()


@pytest.fixture
def path() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder / "usage.db"


def damaged_bytes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield offsets and values: each byte of the header, and some of the rest."""
    for offset in range(HEADER):
        for mask in (0xFF, 0x80, 0x10, 0x01):
            yield offset, data[offset] ^ mask
    for offset in range(100, len(data), 397):
        yield offset, data[offset] ^ 0x80
    for word in (b"holdings", b"device_hours", b"CREATE", b"ml", b"usage"):
        if (offset := data.find(word)) >= 0:
            yield offset, 0xFF


def remove_files(path: Path) -> None:
    for each in path.parent.iterdir():
        each.unlink()


@pytest.mark.slow
def test_r4_a_ledger_with_a_damaged_byte_is_set_aside_or_read_correctly(path: Path) -> None:
    intact = write_ledger(path)
    set_aside = 0
    for offset, value in damaged_bytes(intact):
        remove_files(path)
        path.write_bytes(intact[:offset] + bytes([value]) + intact[offset + 1 :])
        # Readers catch only these errors.
        with (
            contextlib.suppress(*READ_ERRORS, LedgerError),
            closing(open_readonly(path)) as connection,
        ):
            read_window(connection, 0, FOREVER)
            read_holdings(connection, 0, FOREVER)
        file = file_at(path)
        try:
            stored, report = file.open()
        finally:
            file.close()
        # Set aside, or read correctly.
        assert report.quarantined or set(stored.accounts) == {DEVICE}, (offset, value)
        set_aside += bool(report.quarantined)
    assert set_aside > 40


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True], ids=["present", "0.1.0"])
def test_r4_a_damaged_version_is_not_taken_for_an_older_or_newer_podgpu(
    path: Path, *, old: bool
) -> None:
    """The byte has no checksum: whatever its value is, the file is the same."""
    write_ledger(path)
    if old:
        shutil.copy(OLD / "ledger-0.1.0-day.db", path)
    intact = path.read_bytes()
    for value in {*range(34), 64, 127, 128, 255} - {intact[VERSION_AT]}:
        remove_files(path)
        path.write_bytes(intact[:VERSION_AT] + bytes([value]) + intact[VERSION_AT + 1 :])
        with pytest.raises(CorruptError, match=r"damaged|has no column"):
            open_readonly(path)
        file = file_at(path)
        stored, report = file.open()
        file.close()
        assert len(report.quarantined) == 1, value
        assert not stored.accounts


def test_r4_a_ledger_of_a_newer_podgpu_is_left_unchanged(path: Path) -> None:
    """Its version is in the header and in the table `meta`."""
    write_ledger(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"PRAGMA user_version = {VERSION + 1}")
        other.execute(f"UPDATE meta SET value = '{VERSION + 1}' WHERE key = 'tables'")  # noqa: S608
    before = path.read_bytes()
    with pytest.raises(ForeignError, match="use a newer podgpu"):
        open_readonly(path)
    file = file_at(path)
    with pytest.raises(ForeignError, match="use a newer podgpu"):
        file.open()
    file.close()
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("logged", [False, True], ids=["in the file", "in the log"])
def test_r4_a_header_that_is_damaged_while_podgpu_runs_loses_nothing(
    path: Path, *, logged: bool
) -> None:
    """The next commit writes the page again; a reader before that gets an error, or the data."""
    intact = write_ledger(path)
    for offset in range(HEADER):
        remove_files(path)
        path.write_bytes(intact)
        file = file_at(path)
        file.open()
        file.put(example_batch())
        if not logged:
            assert file._store is not None
            file._store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with path.open("r+b") as damaged:
            damaged.seek(offset)
            (byte,) = damaged.read(1)
            damaged.seek(offset)
            damaged.write(bytes([byte ^ 0xFF]))
        with contextlib.suppress(CorruptError), closing(open_readonly(path)) as connection:
            read_window(connection, 0, FOREVER)
        report = file.put(example_batch())
        file.close()
        again = file_at(path)
        stored, later = again.open()
        again.close()
        assert not report.quarantined
        assert not later.quarantined
        assert set(stored.accounts) == {DEVICE}, offset


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE state SET device = CAST(x'ff' AS TEXT)",
        "UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'last'",
        "UPDATE holdings SET id = CAST(x'ff' AS TEXT), end_ns = NULL",
    ],
)
@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_r4_a_row_that_is_not_utf8_stops_accounting_for_at_most_one_commit(
    path: Path, damage: str, when: str
) -> None:
    write_ledger(path)
    file = file_at(path)
    if when == "while it runs":
        file.open()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(damage)
    if when == "at the start":
        file.open()
    batch = example_batch()
    file.put(batch)
    file.close()
    again = file_at(path)
    stored, report = again.open()
    again.put(batch)
    again.close()
    assert set(stored.accounts) == {DEVICE} or len(report.quarantined) == 1
    last = file_at(path)
    assert set(last.open()[0].accounts) == {DEVICE}
    last.close()


@pytest.mark.parametrize("garbage", ["x'ff'", "'text'", "1.5", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("holdings", "held_ns"),
        ("holdings", "busy_ns"),
        ("holdings", "end_ns"),
        ("holdings", "source"),
        ("containers", "namespace"),
        ("devices", "model"),
    ],
)
def test_r4_a_value_of_another_type_is_reported_as_damage(
    path: Path, table: str, column: str, garbage: str
) -> None:
    write_ledger(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE {table} SET {column} = {garbage}")  # noqa: S608
    with closing(open_readonly(path)) as connection:
        if garbage in {"'text'", "1.5"} and column in {"source", "namespace", "model"}:
            read_holdings(connection, 0, FOREVER)  # a text column converts it to text
            return
        read = read_window if table == "devices" else read_holdings
        with pytest.raises(READ_ERRORS) as found:
            read(connection, 0, FOREVER)
    assert isinstance(to_ledger_error("f", found.value), CorruptError)
