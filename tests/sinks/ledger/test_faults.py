"""Whatever becomes of the file, nothing of the accounts is lost and nobody's data removed."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.batch_writer import Store
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.keeping import assert_adds_up
from tests.pipeline.ledger.test_file_open import spoilt
from tests.sinks.ledger.bench import Bench, asked, closed, off, seconds_of, whole
from tests.support.sinks import FakeSinkContext

FAULTS = {
    "no_space": (sqlite3.SQLITE_FULL, "database or disk is full"),
    "io_error": (sqlite3.SQLITE_IOERR, "disk I/O error"),
    "read_only": (sqlite3.SQLITE_READONLY, "attempt to write a readonly database"),
    "locked": (sqlite3.SQLITE_BUSY, "database is locked"),
}


@pytest.mark.parametrize("reason", FAULTS)
async def test_a_commit_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    bench = Bench(tmp_path / "usage.db", commit_interval=Duration.parse("100ms"))
    put, refusing = Store.write_batch, True
    seen: set[str] = set()

    def refuse(store: Store, batch: Any) -> None:
        if not refusing:
            put(store, batch)
            return
        if batch.token in seen:
            put(store, batch)  # a commit may work and say otherwise
        seen.add(batch.token)
        error = sqlite3.OperationalError(FAULTS[reason][1])
        error.sqlite_errorcode = FAULTS[reason][0]
        raise error

    monkeypatch.setattr(Store, "write_batch", refuse)
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("errors").get(f"commit {reason}", 0) >= 1)
        before = bench.counted("errors")[f"commit {reason}"]
        bench.tell(20)
        await bench.until(lambda: bench.counted("errors")[f"commit {reason}"] > before)
        assert "No data is lost" in bench.ctx.own.problems["sink", "usage"].text
        refusing = False
        bench.clock.seconds = 25
        await bench.until(lambda: bench.counted("emitted")[""] >= 2)
    assert await seconds_of(bench.path) == 20
    assert_adds_up(await whole(bench.path))
    assert not list(tmp_path.glob("*.corrupt-*"))


async def test_someone_who_has_the_file_to_himself_costs_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "usage.db", commit_interval=Duration.parse("100ms"))
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        with closing(sqlite3.connect(bench.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            bench.tell(20)
            await bench.until(lambda: bench.counted("errors").get("commit locked", 0) >= 1)
            other.execute("ROLLBACK")
    assert await seconds_of(bench.path) == 20


@pytest.mark.parametrize("how", ["text", "cut", "page", "column", "table"])
async def test_a_spoilt_file_is_set_aside_named_and_a_new_one_begun(
    tmp_path: Path, how: str
) -> None:
    path = await off(spoilt, tmp_path, how)
    content = path.read_bytes()
    bench = Bench(path)
    async with bench.running():
        assert await bench.sink.stored_usage() is None
        bench.tell(10)
    (aside,) = tmp_path.glob("usage.db.corrupt-*Z")
    assert aside.read_bytes() == content
    assert aside.name in bench.ctx.own.problems["sink", "usage"].text
    assert bench.counted("errors") == {"read corrupt": 1}
    assert await seconds_of(path) == 10


async def test_one_that_is_spoilt_while_it_is_written_loses_nothing_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When SQLite finds out lies with its cache; here it is at the next commit."""
    bench = Bench(tmp_path / "usage.db")
    put, sound = Store.write_batch, True

    def find_out(store: Store, batch: Any) -> None:
        nonlocal sound
        if not sound:
            sound = True
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        put(store, batch)

    monkeypatch.setattr(Store, "write_batch", find_out)
    async with bench.running():
        bench.tell(10)
        await bench.until(lambda: bench.counted("emitted")[""] == 1)
        sound = False
        bench.tell(20)
        await bench.until(lambda: list(tmp_path.glob("usage.db.corrupt-*Z")))
        await bench.until(lambda: bench.counted("emitted")[""] == 3)
        bench.tell(40)
    (aside,) = tmp_path.glob("usage.db.corrupt-*Z")
    assert await seconds_of(aside) == 10
    assert await seconds_of(bench.path) == 30, "what it has gained since"
    for table in ("state", "holdings"):
        found = await off(asked, bench.path, f"SELECT count(*) FROM {table}")  # noqa: S608
        assert found == [(1,)], "all that is known stands in the new one"


async def test_no_more_than_three_are_set_aside_and_none_is_removed(tmp_path: Path) -> None:
    path = await off(spoilt, tmp_path, "text")
    for hour in (1, 2, 3):
        (tmp_path / f"usage.db.corrupt-20260101T0{hour}0000Z").write_text("precious")
    with pytest.raises(TransientError, match="save or remove the files that were renamed before"):
        async with LedgerSink(Options(path=path), FakeSinkContext("usage")):
            pass
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 3
    assert path.read_text().startswith("device,seconds")


async def test_accounts_that_make_no_sense_restart_and_the_history_stays(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await off(closed, path, 30)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE state SET usage = '{\"device\": 7}'")
    bench = Bench(path)
    async with bench.running():
        assert await bench.sink.stored_usage() is None
    assert bench.counted("errors") == {"recall corrupt": 1}
    assert await seconds_of(path) == 30


@pytest.mark.parametrize("how", ["version", "application"])
async def test_someone_else_s_file_is_left_alone(tmp_path: Path, how: str) -> None:
    path = await off(spoilt, tmp_path, how)
    content = path.read_bytes()
    with pytest.raises(PermanentError, match="give another path"):
        async with LedgerSink(Options(path=path), FakeSinkContext("usage")):
            pass
    assert path.read_bytes() == content
