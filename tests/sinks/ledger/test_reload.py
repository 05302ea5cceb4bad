"""A ledger whose options change while podgpu runs continues in its file without a loss."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.clock import boot_id
from pipeline.ledger.retention import forget_accounts
from pipeline.ledger.write_batch import Batch
from pipeline.model import NS, Instant
from sinks.ledger.options import Options
from sinks.ledger.sink import LedgerSink
from tests.pipeline.ledger.open_ledger import query
from tests.pipeline.ledger.test_file_open import filled
from tests.sinks.ledger.harness import GPU, SNAPSHOT, SinkHarness, in_thread, write_ledger
from tests.support.nodes import START, at
from tests.support.usage import account, holding, used


def reloaded(harness: SinkHarness, seconds: float, path: Path | None = None) -> SinkHarness:
    """Return the same sink with other options, at a time."""
    return SinkHarness(path or harness.path, seconds, harness.ctx.restart_state)


def snapshot_with_break(seconds: float, gap: int) -> Any:
    """Return a snapshot of an account of ten seconds and a break after them."""
    one = holding("a", GPU, until=at(seconds), gap=gap * NS, held=10 * NS)
    container = used("a", held=10 * NS, busy=7, energy=9, holding=one)
    return SNAPSHOT(account(GPU, container, until=at(seconds)))


@pytest.mark.parametrize(("restarts", "reason"), [(False, "blind"), (True, "down")])
async def test_the_gap_of_a_reload_is_blind_and_the_gap_of_a_restart_is_down(
    tmp_path: Path, restarts: bool, reason: str
) -> None:
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
    after = SinkHarness(harness.path, 40) if restarts else reloaded(harness, 40)
    async with after.running():
        after.inbox.offer(snapshot_with_break(40, 30))
    assert await in_thread(query, harness.path, "SELECT reason, end_ns - start_ns FROM gaps") == [
        (reason, 30 * NS)
    ]


async def test_a_reload_before_the_first_sample_keeps_the_gap_of_the_restart(
    tmp_path: Path,
) -> None:
    await in_thread(write_ledger, tmp_path / "usage.db", 10)
    harness = SinkHarness(tmp_path / "usage.db", 20)
    async with harness.running():
        pass
    after = reloaded(harness, 25)
    async with after.running():
        after.inbox.offer(snapshot_with_break(40, 30))
    assert await in_thread(query, harness.path, "SELECT reason FROM gaps") == [("down",)]


@pytest.mark.parametrize(("name", "seconds"), [("usage.db", 10), ("other.db", None)])
async def test_an_account_that_was_empty_before_a_reload_counts_fully(
    tmp_path: Path, name: str, seconds: int | None
) -> None:
    """For example, a GPU with MIG instances and no energy yet; but not in another file."""
    harness = SinkHarness(tmp_path / "usage.db", -5)
    async with harness.running():
        pass
    after = reloaded(harness, 5, tmp_path / name)
    async with after.running():
        after.send_account(10)
    total = await in_thread(query, after.path, "SELECT sum(accounted_ns) FROM device_hours")
    assert (total[0][0] or None) == (None if seconds is None else seconds * NS)


def test_t8_an_account_of_this_boot_is_kept_when_the_clock_is_set_forward(
    tmp_path: Path,
) -> None:
    """T8: its device isn't found yet; by the monotonic clock the account is a minute old."""
    ledger = filled(tmp_path / "usage.db", 10)
    connection, boot = ledger.store.connection, boot_id() or "boot"
    connection.execute("UPDATE state SET boot = ?", (boot,))
    week, far = 7 * 24 * 3600 * NS, 12 * 366 * 86_400 * NS
    now = Instant(START.mono_ns + 70 * NS, START.wall_ns + far)
    forget_accounts(connection, now, now.wall_ns, boot)
    assert ledger.rows("SELECT count(*) FROM state") == [(1,)]
    forget_accounts(connection, now, now.wall_ns, "another")
    assert ledger.rows("SELECT count(*) FROM state") == [(0,)]
    ledger.accumulator.rewrite_all()
    ledger.commit()
    connection.execute("UPDATE state SET boot = ?", (boot,))
    later = Instant(START.mono_ns + week + 20 * NS, START.wall_ns)
    forget_accounts(connection, later, later.wall_ns, boot)
    assert ledger.rows("SELECT count(*) FROM state") == [(0,)]
    ledger.close()


def write_ledger_of_another_boot(path: Path) -> str:
    """Make a ledger that another boot wrote; return the id of this boot."""
    ledger = filled(path, 10)
    ledger.store.connection.execute("UPDATE state SET boot = 'another'")
    ledger.close()
    return boot_id() or "another"


async def test_t8_accounts_of_another_boot_are_rewritten_with_times_of_this_boot(
    tmp_path: Path,
) -> None:
    """T8: immediately, before the first sample."""
    path = tmp_path / "usage.db"
    boot = await in_thread(write_ledger_of_another_boot, path)
    async with SinkHarness(path, 60).running():
        pass
    assert await in_thread(query, path, "SELECT boot FROM state") == [(boot,)]


async def test_t8_nothing_is_removed_after_a_reload_when_the_clock_is_set_forward(
    tmp_path: Path,
) -> None:
    """T8: the sink does not restart because of that."""
    years = 12 * 366 * 86_400
    harness = SinkHarness(tmp_path / "usage.db")
    async with harness.running():
        harness.send_account(10)
    after = reloaded(harness, 20)
    set_ = Instant(START.mono_ns + 100 * NS, START.wall_ns + (100 + years) * NS)
    after.clock.now = lambda: set_  # type: ignore[method-assign]
    restarts = LedgerSink(Options(path=harness.path), after.ctx)
    async with restarts:
        opened = restarts._open
        assert opened is not None
        report = await asyncio.wrap_future(opened.thread.submit(opened.file.put, Batch()))
    assert not report.removed.old
    assert await in_thread(query, harness.path, "SELECT sum(accounted_ns) FROM device_hours") == [
        (10 * NS,)
    ]
