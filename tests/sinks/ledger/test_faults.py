"""Faults of the file lose no usage, and never remove another program's data."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.batch_writer import BatchWriter
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.open_ledger import assert_adds_up
from tests.pipeline.ledger.test_file_open import invalid_ledger
from tests.sinks.ledger.harness import (
    SinkHarness,
    in_thread,
    query_file,
    read_whole_window,
    seconds_of,
    write_ledger,
)
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
    harness = SinkHarness(tmp_path / "usage.db", commit_interval=Duration.parse("100ms"))
    put, refusing = BatchWriter.write_batch, True
    seen: set[str] = set()

    def refuse(store: BatchWriter, batch: Any) -> None:
        if not refusing:
            put(store, batch)
            return
        if batch.token in seen:
            put(store, batch)  # a commit may succeed and report an error
        seen.add(batch.token)
        error = sqlite3.OperationalError(FAULTS[reason][1])
        error.sqlite_errorcode = FAULTS[reason][0]
        raise error

    monkeypatch.setattr(BatchWriter, "write_batch", refuse)
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("errors").get(f"commit {reason}", 0) >= 1)
        before = harness.counted("errors")[f"commit {reason}"]
        harness.send_account(20)
        await harness.until(lambda: harness.counted("errors")[f"commit {reason}"] > before)
        assert "No data is lost" in harness.ctx.own.problems["sink", "usage"].text
        refusing = False
        harness.clock.seconds = 25
        await harness.until(lambda: harness.counted("emitted")[""] >= 2)
    assert await seconds_of(harness.path) == 20
    assert_adds_up(await read_whole_window(harness.path))
    assert not list(tmp_path.glob("*.corrupt-*"))


@pytest.mark.slow
async def test_a_program_that_locks_the_file_for_a_while_causes_no_loss(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db", commit_interval=Duration.parse("100ms"))
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        with closing(sqlite3.connect(harness.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            harness.send_account(20)
            await harness.until(lambda: harness.counted("errors").get("commit locked", 0) >= 1)
            other.execute("ROLLBACK")
    assert await seconds_of(harness.path) == 20


@pytest.mark.parametrize("how", ["text", "cut", "page", "column", "table"])
async def test_a_damaged_file_is_set_aside_and_a_new_one_is_started(
    tmp_path: Path, how: str
) -> None:
    path = await in_thread(invalid_ledger, tmp_path, how)
    content = path.read_bytes()
    harness = SinkHarness(path)
    async with harness.running():
        assert await harness.sink.stored_usage() is None
        harness.send_account(10)
    (damaged,) = tmp_path.glob("usage.db.corrupt-*Z")
    assert damaged.read_bytes() == content
    assert damaged.name in harness.ctx.own.problems["sink", "usage"].text
    assert harness.counted("errors") == {"read corrupt": 1}
    assert await seconds_of(path) == 10


@pytest.mark.slow
async def test_a_file_that_is_damaged_while_podgpu_runs_loses_only_its_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When SQLite notices it depends on its cache; here it is at the next commit."""
    harness = SinkHarness(tmp_path / "usage.db")
    put, intact = BatchWriter.write_batch, True

    def fail_once(store: BatchWriter, batch: Any) -> None:
        nonlocal intact
        if not intact:
            intact = True
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        put(store, batch)

    monkeypatch.setattr(BatchWriter, "write_batch", fail_once)
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted")[""] == 1)
        intact = False
        harness.send_account(20)
        await harness.until(lambda: list(tmp_path.glob("usage.db.corrupt-*Z")))
        await harness.until(lambda: harness.counted("emitted")[""] == 3)
        harness.send_account(40)
    (damaged,) = tmp_path.glob("usage.db.corrupt-*Z")
    assert await seconds_of(damaged) == 10
    assert await seconds_of(harness.path) == 30, "the increase since then"
    for table in ("state", "holdings"):
        found = await in_thread(query_file, harness.path, f"SELECT count(*) FROM {table}")  # noqa: S608
        assert found == [(1,)], "the new file contains everything that is known"


async def test_at_most_three_files_are_set_aside_and_none_is_removed(tmp_path: Path) -> None:
    path = await in_thread(invalid_ledger, tmp_path, "text")
    for hour in (1, 2, 3):
        (tmp_path / f"usage.db.corrupt-20260101T0{hour}0000Z").write_text("precious")
    with pytest.raises(TransientError, match="save or remove the files that were renamed before"):
        async with LedgerSink(Options(path=path), FakeSinkContext("usage")):
            pass
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 3
    assert path.read_text().startswith("device,seconds")


async def test_inconsistent_accounts_start_at_zero_and_the_history_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    await in_thread(write_ledger, path, 30)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE state SET usage = '{\"device\": 7}'")
    harness = SinkHarness(path)
    async with harness.running():
        assert await harness.sink.stored_usage() is None
    assert harness.counted("errors") == {"recall corrupt": 1}
    assert await seconds_of(path) == 30


@pytest.mark.parametrize("how", ["version", "application"])
async def test_a_file_of_another_program_or_a_newer_podgpu_is_left_unchanged(
    tmp_path: Path, how: str
) -> None:
    path = await in_thread(invalid_ledger, tmp_path, how)
    content = path.read_bytes()
    with pytest.raises(PermanentError, match="give another path"):
        async with LedgerSink(Options(path=path), FakeSinkContext("usage")):
            pass
    assert path.read_bytes() == content
