"""A ledger whose options change while podgpu runs goes on in its file: it has missed nothing."""

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
from tests.pipeline.ledger.keeping import query
from tests.pipeline.ledger.test_file_open import filled
from tests.sinks.ledger.bench import GPU, SHOWN, Bench, closed, off
from tests.support.nodes import START, at
from tests.support.usage import account, holding, used


def reloaded(bench: Bench, seconds: float, path: Path | None = None) -> Bench:
    """The same sink with other options, at a moment."""
    return Bench(path or bench.path, seconds, bench.ctx.restart_state)


def blind(seconds: float, gap: int) -> Any:
    """A snapshot of an account of ten seconds, and of a break after them."""
    one = holding("a", GPU, until=at(seconds), gap=gap * NS, held=10 * NS)
    had = used("a", held=10 * NS, busy=7, energy=9, holding=one)
    return SHOWN(account(GPU, had, until=at(seconds)))


@pytest.mark.parametrize(("again", "reason"), [(False, "blind"), (True, "down")])
async def test_a_break_in_the_looks_is_reported_from_a_start(
    tmp_path: Path, again: bool, reason: str
) -> None:
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
    after = Bench(bench.path, 40) if again else reloaded(bench, 40)
    async with after.running():
        after.inbox.offer(blind(40, 30))
    assert await off(query, bench.path, "SELECT reason, end_ns - start_ns FROM gaps") == [
        (reason, 30 * NS)
    ]


async def test_it_is_down_until_the_first_look_after_a_start_over_a_reload(tmp_path: Path) -> None:
    await off(closed, tmp_path / "usage.db", 10)
    bench = Bench(tmp_path / "usage.db", 20)
    async with bench.running():
        pass
    after = reloaded(bench, 25)
    async with after.running():
        after.inbox.offer(blind(40, 30))
    assert await off(query, bench.path, "SELECT reason FROM gaps") == [("down",)]


@pytest.mark.parametrize(("name", "seconds"), [("usage.db", 10), ("other.db", None)])
async def test_an_account_that_had_nothing_to_show_before_a_reload_counts_whole(
    tmp_path: Path, name: str, seconds: int | None
) -> None:
    """As a GPU that carries MIG instances and hasn't told of energy; but not in another file."""
    bench = Bench(tmp_path / "usage.db", -5)
    async with bench.running():
        pass
    after = reloaded(bench, 5, tmp_path / name)
    async with after.running():
        after.tell(10)
    given_out = await off(query, after.path, "SELECT sum(accounted_ns) FROM device_hours")
    assert (given_out[0][0] or None) == (None if seconds is None else seconds * NS)


def test_t8_an_account_of_this_boot_is_not_too_old_when_the_clock_is_set_forward(
    tmp_path: Path,
) -> None:
    """T8: its device isn't found yet; by the monotonic clock the account is a minute old."""
    kept = filled(tmp_path / "usage.db", 10)
    connection, boot = kept.store._connection, boot_id() or "boot"
    connection.execute("UPDATE state SET boot = ?", (boot,))
    week, far = 7 * 24 * 3600 * NS, 12 * 366 * 86_400 * NS
    now = Instant(START.mono_ns + 70 * NS, START.wall_ns + far)
    forget_accounts(connection, now, now.wall_ns, boot)
    assert kept.rows("SELECT count(*) FROM state") == [(1,)]
    forget_accounts(connection, now, now.wall_ns, "another")
    assert kept.rows("SELECT count(*) FROM state") == [(0,)]
    kept.book.rewrite_all()
    kept.commit()
    connection.execute("UPDATE state SET boot = ?", (boot,))
    later = Instant(START.mono_ns + week + 20 * NS, START.wall_ns)
    forget_accounts(connection, later, later.wall_ns, boot)
    assert kept.rows("SELECT count(*) FROM state") == [(0,)]
    kept.close()


def left_by_another_boot(path: Path) -> str:
    """Make a ledger that another boot wrote; return what identifies this one."""
    kept = filled(path, 10)
    kept.store._connection.execute("UPDATE state SET boot = 'another'")
    kept.close()
    return boot_id() or "another"


async def test_t8_accounts_of_another_boot_are_written_with_moments_of_this_one(
    tmp_path: Path,
) -> None:
    """T8: at once, before anybody looks."""
    path = tmp_path / "usage.db"
    boot = await off(left_by_another_boot, path)
    async with Bench(path, 60).running():
        pass
    assert await off(query, path, "SELECT boot FROM state") == [(boot,)]


async def test_t8_a_clock_that_is_set_forward_makes_nothing_old_after_a_reload(
    tmp_path: Path,
) -> None:
    """T8: podgpu doesn't start anew by that."""
    years = 12 * 366 * 86_400
    bench = Bench(tmp_path / "usage.db")
    async with bench.running():
        bench.tell(10)
    after = reloaded(bench, 20)
    set_ = Instant(START.mono_ns + 100 * NS, START.wall_ns + (100 + years) * NS)
    after.clock.now = lambda: set_  # type: ignore[method-assign]
    again = LedgerSink(Options(path=bench.path), after.ctx)
    async with again:
        assert again._file is not None
        assert again._thread is not None
        report = await asyncio.wrap_future(again._thread.submit(again._file.put, Batch()))
    assert not report.removed.old
    assert await off(query, bench.path, "SELECT sum(accounted_ns) FROM device_hours") == [
        (10 * NS,)
    ]
