"""The sink shows how much of its ledger is not in the archive, only if there is an archive."""

import sqlite3
from contextlib import closing
from pathlib import Path

from pipeline.ledger.archive_backlog import OVERDUE_NS
from pipeline.ledger.schema import HOUR_NS
from pipeline.ledger.sealing import note_written, seal
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import NS
from tests.sinks.ledger.harness import SinkHarness, in_thread, write_ledger
from tests.support.nodes import START

PENDING = "podgpu_sink_archive_pending_rows"
WRITTEN = "podgpu_sink_archive_written_timestamp_seconds"
DAY = 24 * 3600


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def seal_all(path: Path, now_ns: int) -> None:
    """Seal and write everything that is closed."""
    with closing(open_readwrite(path, "normal")) as connection:
        while seal(connection, "east", "node-1", now_ns):
            connection.execute("DELETE FROM outbox")
            connection.execute("DELETE FROM outbox_objects")
        note_written(connection, "/archive", now_ns)


def problem(harness: SinkHarness) -> str:
    found = harness.ctx.own.problems.get(("sink", "usage"))
    return "" if found is None else found.text


async def test_there_is_no_sample_without_an_archive(tmp_path: Path) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
        await harness.until(lambda: harness.counted("emitted").get("", 0) >= 1)
    assert not harness.ctx.counted(PENDING)
    assert not harness.ctx.counted(WRITTEN)


async def test_rows_and_the_last_success_are_shown(tmp_path: Path) -> None:
    """And a problem, if nothing was written for too long."""
    path = tmp_path / "usage.db"
    await in_thread(write_ledger, path, 3600)
    written_ns = START.wall_ns + 2 * HOUR_NS
    await in_thread(seal_all, path, written_ns)
    harness = SinkHarness(path, seconds=2 * 3600 + 600)
    async with harness.running():
        harness.send_account(harness.clock.seconds)
        await harness.until(lambda: harness.ctx.counted(PENDING))
        assert harness.ctx.counted(PENDING)[""] < 6
        assert harness.ctx.counted(WRITTEN)[""] == written_ns / NS
        assert "archive" not in problem(harness)
        harness.send_account(2 * 3600 + OVERDUE_NS / NS + 60)
        await harness.until(lambda: "archive" in problem(harness))
    text = problem(harness)
    assert f"{path} is not written to its archive (last 2027-01-15T10:00Z)" in text
    assert "see the log of podgpu archive" in text


async def test_rows_that_max_size_removes_before_they_are_archived_are_counted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "usage.db"
    await in_thread(write_ledger, path, 3600)
    await in_thread(seal_all, path, START.wall_ns + 2 * HOUR_NS)
    # A table that fills the file.
    filler = "CREATE TABLE filler AS SELECT zeroblob(2000000)"
    await in_thread(change, path, filler)
    harness = SinkHarness(path, seconds=3 * DAY)
    async with harness.running():
        harness.send_account(3 * DAY)
        await harness.until(lambda: harness.counted("emitted").get("", 0) >= 1)
        harness.clock.seconds += 120
        harness.send_account(harness.clock.seconds)
        await harness.until(lambda: harness.counted("emitted").get("", 0) >= 2)
    assert "not_archived" not in harness.counted("dropped")
    small = SinkHarness(path, seconds=4 * DAY, max_size=1 << 20)
    async with small.running():
        small.send_account(4 * DAY)
        await small.until(lambda: small.counted("dropped").get("not_archived", 0) > 0)
