"""Who reads a ledger never writes, whatever the writer does; what is no ledger is named."""

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

from pipeline.ledger.errors import CorruptError, ForeignError, LedgerError
from pipeline.ledger.file_creation import open_readwrite
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.schema import VERSION, WRITE_VERSION
from pipeline.model import NS
from tests.pipeline.ledger.keeping import Kept, Shown, window_of
from tests.support.nodes import at, gpu
from tests.support.usage import account

SHOWN = Shown()
KILLED = """
import os, sys
from pathlib import Path
from tests.pipeline.ledger.keeping import Kept
from tests.pipeline.ledger.test_file_open import filled
kept = filled(Path(sys.argv[1]), int(sys.argv[2]))
os.kill(os.getpid(), 9)
"""


def filled(path: Path, seconds: int) -> Kept:
    """A ledger that is open and has an account of so long."""
    kept = Kept(path)
    add(kept, seconds)
    return kept


def killed(path: Path, seconds: int) -> None:
    """Let another process write it, and be killed."""
    command = [sys.executable, "-c", KILLED, str(path), str(seconds)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -9


def add(kept: Kept, seconds: int) -> None:
    kept.book.add_snapshot(SHOWN(account(gpu(0), until=at(seconds), unheld=seconds * NS)))
    kept.commit()


def seconds_of(path: Path) -> float:
    (total,) = window_of(path).totals
    return total.accounted_ns / NS


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if "shm" not in each.name}


def test_it_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    kept = filled(path, 30)
    with closing(open_readonly(path)) as connection:
        add(kept, 40)
        assert seconds_of(path) == 40
        (found,) = connection.execute("SELECT sum(accounted_ns) FROM device_hours").fetchone()
        assert found == 40 * NS
    kept.close()


def test_it_is_read_after_its_writer_has_ended_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    filled(path, 30).close()
    before = contents(tmp_path)
    assert list(before) == ["usage.db"]
    assert seconds_of(path) == 30
    assert contents(tmp_path) == before


def test_it_is_read_after_its_writer_was_killed_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    killed(path, 30)
    before = contents(tmp_path)
    assert before.keys() == {"usage.db", "usage.db-wal"}
    assert seconds_of(path) == 30
    assert contents(tmp_path) == before
    with closing(open_readonly(path)) as connection:
        connection.execute("SELECT * FROM hours").fetchall()
        killed(path, 40)
        assert seconds_of(path) == 40


def test_a_copy_of_the_file_alone_is_a_ledger_too(tmp_path: Path) -> None:
    filled(tmp_path / "usage.db", 30).close()
    shutil.copy(tmp_path / "usage.db", tmp_path / "a?copy#1%20.db")
    assert seconds_of(tmp_path / "a?copy#1%20.db") == 30


def test_a_copy_with_its_log_says_what_it_lacks(tmp_path: Path) -> None:
    path, shared = tmp_path / "usage.db", tmp_path / "usage.db-shm"
    killed(path, 30)
    shared.unlink()
    with pytest.raises(
        LedgerError, match=f"without usage.db-shm; create the missing file.* touch {shared}"
    ):
        open_readonly(path)
    shared.touch()
    before = contents(tmp_path)
    assert seconds_of(path) == 30
    assert (contents(tmp_path), shared.read_bytes()) == (before, b"")


def test_a_copy_with_an_empty_log_is_as_one_without(tmp_path: Path) -> None:
    filled(tmp_path / "usage.db", 30).close()
    (tmp_path / "usage.db-wal").touch()
    assert seconds_of(tmp_path / "usage.db") == 30


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    kept = filled(tmp_path / "usage.db", 30)
    with (
        closing(open_readonly(kept.path)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM hours")
    kept.close()


def test_a_ledger_is_for_its_owner_and_group(tmp_path: Path) -> None:
    kept = filled(tmp_path / "usage.db", 30)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {"usage.db": 0o640, "usage.db-wal": 0o640, "usage.db-shm": 0o640}
    kept.close()


def test_nothing_goes_into_files_beside_it(tmp_path: Path) -> None:
    """With a root file system that is read-only there is no place for them."""
    path = tmp_path / "usage.db"
    for opens in (_writer(path), lambda: open_readonly(path)):
        with closing(opens()) as connection:
            assert connection.execute("PRAGMA temp_store").fetchone() == (2,), "MEMORY"


class Refusing(sqlite3.Connection):
    """Fails at the reader's own settings: the disk answers no more."""

    def execute(self, text: str, *given: Any) -> sqlite3.Cursor:
        if "cache_size" in text:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(text, *given)


def test_a_disk_that_fails_while_it_is_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "usage.db"
    filled(path, 30).close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Refusing))
    with pytest.raises(LedgerError, match=f"{path}: disk I/O error; check"):
        open_readonly(path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_log_that_cannot_be_looked_at_is_named(
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


def spoilt(folder: Path, how: str) -> Path:
    """Make a file that is no ledger any more."""
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
def test_what_is_no_ledger_is_named(
    tmp_path: Path, how: str, reads: type[LedgerError] | None, writes: type[LedgerError] | None
) -> None:
    path = spoilt(tmp_path, how)
    for opens, expected in ((lambda: open_readonly(path), reads), (_writer(path), writes)):
        before = contents(tmp_path)
        if expected is None:
            opens().close()
            continue
        with pytest.raises(expected) as caught:
            opens().close()
        assert type(caught.value) is expected
        assert str(path) in str(caught.value)
        assert caught.value.fix
        assert contents(tmp_path) == before, "it was not touched"


def _writer(path: Path):  # type: ignore[no-untyped-def]
    return lambda: open_readwrite(path, "normal")


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_one_whose_maker_was_killed_before_it_had_tables_is_made(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "usage.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    filled(path, 30).close()
    assert seconds_of(path) == 30


@pytest.mark.parametrize("name", ["usage.db", "usage.db-wal"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(LedgerError, match="is a symbolic link"):
        open_readwrite(tmp_path / "usage.db", "normal")
    assert victim.read_bytes() == b""
