"""Readers never write to a ledger, and files that are no ledger are refused with a reason."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.ledger.file_open import CorruptError, ForeignError, LedgerError, open_readonly
from pipeline.ledger.schema import VERSION, WRITE_VERSION
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import NS
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, window_of
from tests.support.nodes import at, gpu
from tests.support.usage import account

SNAPSHOT = Snapshots()
KILLED = """
import os, sys
from pathlib import Path
from tests.pipeline.ledger.open_ledger import OpenLedger
from tests.pipeline.ledger.test_file_open import filled
kept = filled(Path(sys.argv[1]), int(sys.argv[2]))
os.kill(os.getpid(), 9)
"""


def filled(path: Path, seconds: int) -> OpenLedger:
    """Return an open ledger with an account of some seconds."""
    ledger = OpenLedger(path)
    add(ledger, seconds)
    return ledger


def write_and_be_killed(path: Path, seconds: int) -> None:
    """Write a ledger in another process, and kill that process."""
    command = [sys.executable, "-c", KILLED, str(path), str(seconds)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -9


def add(ledger: OpenLedger, seconds: int) -> None:
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account(gpu(0), until=at(seconds), unheld=seconds * NS))
    )
    ledger.commit()


def seconds_of(path: Path) -> float:
    (total,) = window_of(path).totals
    return total.accounted_ns / NS


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if "shm" not in each.name}


def test_a_ledger_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    ledger = filled(path, 30)
    with closing(open_readonly(path)) as connection:
        add(ledger, 40)
        assert seconds_of(path) == 40
        (found,) = connection.execute("SELECT sum(accounted_ns) FROM device_hours").fetchone()
        assert found == 40 * NS
    ledger.close()


def test_a_closed_ledger_can_be_read_and_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    filled(path, 30).close()
    before = contents(tmp_path)
    assert list(before) == ["usage.db"]
    assert seconds_of(path) == 30
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_ledger_whose_writer_was_killed_can_be_read_and_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    write_and_be_killed(path, 30)
    before = contents(tmp_path)
    assert before.keys() == {"usage.db", "usage.db-wal"}
    assert seconds_of(path) == 30
    assert contents(tmp_path) == before
    with closing(open_readonly(path)) as connection:
        connection.execute("SELECT * FROM hours").fetchall()
        write_and_be_killed(path, 40)
        assert seconds_of(path) == 40


def test_a_copy_of_the_file_without_its_log_is_a_ledger(tmp_path: Path) -> None:
    filled(tmp_path / "usage.db", 30).close()
    shutil.copy(tmp_path / "usage.db", tmp_path / "a?copy#1%20.db")
    assert seconds_of(tmp_path / "a?copy#1%20.db") == 30


@pytest.mark.slow
def test_the_error_for_a_copy_with_its_log_names_the_missing_file(tmp_path: Path) -> None:
    path, shared = tmp_path / "usage.db", tmp_path / "usage.db-shm"
    write_and_be_killed(path, 30)
    shared.unlink()
    with pytest.raises(
        LedgerError, match=f"without usage.db-shm; create the missing file.* touch {shared}"
    ):
        open_readonly(path)
    shared.touch()
    before = contents(tmp_path)
    assert seconds_of(path) == 30
    assert (contents(tmp_path), shared.read_bytes()) == (before, b"")


def test_a_copy_with_an_empty_log_can_be_read(tmp_path: Path) -> None:
    filled(tmp_path / "usage.db", 30).close()
    (tmp_path / "usage.db-wal").touch()
    assert seconds_of(tmp_path / "usage.db") == 30


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "usage.db", 30)
    with (
        closing(open_readonly(ledger.path)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM hours")
    ledger.close()


def test_owner_and_group_can_read_a_ledger(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "usage.db", 30)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {"usage.db": 0o640, "usage.db-wal": 0o640, "usage.db-shm": 0o640}
    ledger.close()


def test_no_temporary_files_are_written(tmp_path: Path) -> None:
    """With a read-only root file system there is no place for temporary files."""
    path = tmp_path / "usage.db"
    for opener in (_writer(path), lambda: open_readonly(path)):
        with closing(opener()) as connection:
            assert connection.execute("PRAGMA temp_store").fetchone() == (2,), "MEMORY"


class Refusing(sqlite3.Connection):
    """Fail when the reader changes its settings: the disk no longer responds."""

    def execute(self, text: str, *arguments: Any) -> sqlite3.Cursor:
        if "cache_size" in text:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(text, *arguments)


def test_the_error_for_a_disk_that_fails_while_opening_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "usage.db"
    filled(path, 30).close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Refusing))
    with pytest.raises(LedgerError, match=f"{path}: disk I/O error; check"):
        open_readonly(path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_the_error_for_a_log_that_can_not_be_examined_contains_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "usage.db"
    filled(path, 30).close()
    stat = Path.stat

    def refuse(each: Path, **how: bool) -> os.stat_result:
        if each.name == "usage.db-shm":
            raise OSError(number, os.strerror(number))
        return stat(each, **how)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(LedgerError, match=os.strerror(number).lower()):
        open_readonly(path)


def invalid_ledger(folder: Path, how: str) -> Path:
    """Make a file that isn't a valid ledger."""
    path = folder / "usage.db"
    if how == "missing":
        return path
    filled(path, 30).close()
    match how:
        case "text":
            path.write_text("device,seconds\n" * 1000)
        case "cut":
            os.truncate(path, path.stat().st_size // 2)
        case "page":
            with path.open("r+b") as file:
                file.seek(4096 * 2)
                file.write(os.urandom(4096 * 12))
        case "column" | "table" | "version" | "application":
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(
                    {
                        "column": "ALTER TABLE hours DROP COLUMN energy_mj",
                        "table": "DROP TABLE state",
                        "version": WRITE_VERSION.replace(str(VERSION), str(VERSION + 1))
                        + f"PRAGMA user_version = {VERSION + 1};",
                        "application": "PRAGMA application_id = 7",
                    }[how]
                )
        case _:
            path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("how", "reads", "writes"),
    [
        ("missing", LedgerError, None),
        ("empty", CorruptError, None),
        ("text", CorruptError, CorruptError),
        ("cut", CorruptError, CorruptError),
        ("page", CorruptError, CorruptError),
        ("column", CorruptError, CorruptError),
        ("table", CorruptError, CorruptError),
        ("version", ForeignError, ForeignError),
        ("application", ForeignError, ForeignError),
    ],
)
def test_the_error_for_a_file_that_is_no_ledger_names_it_and_a_fix(
    tmp_path: Path, how: str, reads: type[LedgerError] | None, writes: type[LedgerError] | None
) -> None:
    path = invalid_ledger(tmp_path, how)
    for opener, expected in ((lambda: open_readonly(path), reads), (_writer(path), writes)):
        before = contents(tmp_path)
        if expected is None:
            opener().close()
            continue
        with pytest.raises(expected) as caught:
            opener().close()
        assert type(caught.value) is expected
        assert str(path) in str(caught.value)
        assert caught.value.fix
        assert contents(tmp_path) == before, "it was not touched"


def _writer(path: Path):  # type: ignore[no-untyped-def]
    return lambda: open_readwrite(path, "normal")


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_file_whose_writer_was_killed_before_it_created_tables_is_completed(
    tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "usage.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    filled(path, 30).close()
    assert seconds_of(path) == 30


@pytest.mark.parametrize("name", ["usage.db", "usage.db-wal"])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(LedgerError, match="is a symbolic link"):
        open_readwrite(tmp_path / "usage.db", "normal")
    assert victim.read_bytes() == b""
