"""R4: damaged bytes in a ledger are the file's fault, and never end what opens it."""

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
from pipeline.ledger.errors import CorruptError, ForeignError, LedgerError
from pipeline.ledger.file_open import READ_ERRORS, open_readonly, to_ledger_error
from pipeline.ledger.queries import read_holdings, read_window
from pipeline.ledger.write_batch import Batch
from sinks.ledger.ledger_file import LedgerFile
from sinks.ledger.options import Options
from tests.pipeline.ledger.keeping import FOREVER, Shown
from tests.pipeline.ledger.test_account_state import full
from tests.pipeline.ledger.test_migrations import OLD

SHOWN = Shown()
HEADER = 100
"""Bytes that SQLite's header has."""
DEVICE = full().device
VERSION_AT = 63
"""Where the last byte of `user_version` stands in it."""


def file_at(path: Path) -> LedgerFile:
    options = Options(path=path, commit_interval=Duration.parse("1s"))
    return LedgerFile(options, "node-1", SystemClock().now)


def written(path: Path) -> bytes:
    """Return the bytes of a ledger with accounts and holdings."""
    file = file_at(path)
    file.open()
    file.put(a_batch())
    file.close()
    return path.read_bytes()


def a_batch() -> Batch:
    usage = full()
    book = LedgerAccumulator(usage.at, {})
    book.add_snapshot(SHOWN(usage))
    return book.take_batch()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    return tmp_path / "ledger" / "usage.db"


def damages(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield places and values: each byte of the header, and some of the rest."""
    for place in range(HEADER):
        for mask in (0xFF, 0x80, 0x10, 0x01):
            yield place, data[place] ^ mask
    for place in range(100, len(data), 397):
        yield place, data[place] ^ 0x80
    for word in (b"holdings", b"device_hours", b"CREATE", b"ml", b"usage"):
        if (place := data.find(word)) >= 0:
            yield place, 0xFF


def clean(path: Path) -> None:
    for each in path.parent.iterdir():
        each.unlink()


def test_r4_a_damaged_byte_is_set_aside_or_does_no_harm(path: Path) -> None:
    sound = written(path)
    aside = 0
    for place, value in damages(sound):
        clean(path)
        path.write_bytes(sound[:place] + bytes([value]) + sound[place + 1 :])
        # Whoever reads catches these alone.
        with (
            contextlib.suppress(*READ_ERRORS, LedgerError),
            closing(open_readonly(path)) as connection,
        ):
            read_window(connection, 0, FOREVER)
            read_holdings(connection, 0, FOREVER)
        file = file_at(path)
        try:
            left, report = file.open()
        finally:
            file.close()
        # Set aside, or read right.
        assert report.quarantined or set(left.accounts) == {DEVICE}, (place, value)
        aside += bool(report.quarantined)
    assert aside > 40


@pytest.mark.parametrize("old", [False, True], ids=["present", "0.1.0"])
def test_r4_a_damaged_version_is_neither_an_older_nor_a_newer_podgpus(
    path: Path, *, old: bool
) -> None:
    """One byte of the header has it, and no checksum: whatever it becomes, the file is the same."""
    written(path)
    if old:
        shutil.copy(OLD / "ledger-0.1.0-day.db", path)
    sound = path.read_bytes()
    for value in {*range(34), 64, 127, 128, 255} - {sound[VERSION_AT]}:
        clean(path)
        path.write_bytes(sound[:VERSION_AT] + bytes([value]) + sound[VERSION_AT + 1 :])
        with pytest.raises(CorruptError, match=r"damaged|has no column"):
            open_readonly(path)
        file = file_at(path)
        left, report = file.open()
        file.close()
        assert len(report.quarantined) == 1, value
        assert not left.accounts


def test_r4_a_newer_ledger_is_left_as_it_is(path: Path) -> None:
    """It says so twice: in its header, and in its table `meta`."""
    written(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("PRAGMA user_version = 3")
        other.execute("UPDATE meta SET value = '3' WHERE key = 'tables'")
    before = path.read_bytes()
    with pytest.raises(ForeignError, match="use a newer podgpu"):
        open_readonly(path)
    file = file_at(path)
    with pytest.raises(ForeignError, match="use a newer podgpu"):
        file.open()
    file.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("logged", [False, True], ids=["in the file", "in the log"])
def test_r4_a_header_that_is_damaged_while_it_runs_costs_nothing(
    path: Path, *, logged: bool
) -> None:
    """The next commit writes the page anew; who reads before that is told, or reads on."""
    sound = written(path)
    for place in range(HEADER):
        clean(path)
        path.write_bytes(sound)
        file = file_at(path)
        file.open()
        file.put(a_batch())
        if not logged:
            assert file._connection is not None
            file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with path.open("r+b") as spoilt:
            spoilt.seek(place)
            (byte,) = spoilt.read(1)
            spoilt.seek(place)
            spoilt.write(bytes([byte ^ 0xFF]))
        with contextlib.suppress(CorruptError), closing(open_readonly(path)) as connection:
            read_window(connection, 0, FOREVER)
        report = file.put(a_batch())
        file.close()
        again = file_at(path)
        left, later = again.open()
        again.close()
        assert not report.quarantined
        assert not later.quarantined
        assert set(left.accounts) == {DEVICE}, place


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE state SET device = CAST(x'ff' AS TEXT)",
        "UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'last'",
        "UPDATE holdings SET id = CAST(x'ff' AS TEXT), end_ns = NULL",
    ],
)
@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_r4_a_row_that_is_not_utf8_stops_accounting_for_no_longer_than_a_commit(
    path: Path, spoil: str, when: str
) -> None:
    written(path)
    file = file_at(path)
    if when == "while it runs":
        file.open()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(spoil)
    if when == "at the start":
        file.open()
    batch = a_batch()
    file.put(batch)
    file.close()
    again = file_at(path)
    left, report = again.open()
    again.put(batch)
    again.close()
    assert set(left.accounts) == {DEVICE} or len(report.quarantined) == 1
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
    written(path)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE {table} SET {column} = {garbage}")  # noqa: S608
    with closing(open_readonly(path)) as connection:
        if garbage in {"'text'", "1.5"} and column in {"source", "namespace", "model"}:
            read_holdings(connection, 0, FOREVER)  # a column of text makes text of it
            return
        read = read_window if table == "devices" else read_holdings
        with pytest.raises(READ_ERRORS) as found:
            read(connection, 0, FOREVER)
    assert isinstance(to_ledger_error("f", found.value), CorruptError)
