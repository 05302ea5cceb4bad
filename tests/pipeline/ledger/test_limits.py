"""The memory of the ledger, and the number of hours of a gap, are limited."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger import write_batch
from pipeline.ledger.batch_writer import BatchWriter
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.writer_open import open_readwrite
from pipeline.model import NS, Instant, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, assert_adds_up, window_of
from tests.support.nodes import START, at, gpu
from tests.support.usage import account, holding, used

GPU = gpu(0)
SNAPSHOT = Snapshots()
DAY = 24 * 3600


@pytest.mark.slow
@pytest.mark.parametrize("years", [2, 56, 80])
def test_a_clock_that_was_wrong_by_years_makes_a_gap_of_limited_length(
    tmp_path: Path, years: int
) -> None:
    """For example, the file was written before the clock was set, in 1970."""
    path = tmp_path / "usage.db"
    before = account(GPU, until=at(100), unheld=100 * NS)
    now = Instant(START.mono_ns + years * 365 * DAY * NS, START.wall_ns + years * 365 * DAY * NS)
    accumulator = LedgerAccumulator(now, {GPU.uuid: before})
    accumulator.add_snapshot(SNAPSHOT(account(GPU, until=now, unheld=110 * NS)))
    batch = accumulator.take_batch()
    assert len(batch.gap_hours) <= 400 * 24 + 1
    connection = open_readwrite(path, "normal")
    BatchWriter(connection).write_batch(batch)
    connection.close()
    (gap,) = window_of(path).gaps
    (total,) = window_of(path).totals
    assert gap.end_ns - gap.start_ns == total.gap_ns == 400 * DAY * NS
    assert total.accounted_ns == 10 * NS


def test_entries_of_short_pods_are_limited_while_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_HOURS", "MAX_HOLDINGS"):
        monkeypatch.setattr(write_batch, name, 50)
    ledger = OpenLedger(tmp_path / "usage.db")
    forgotten = 0
    for number in range(1, 1001):
        until, name = at(number * 60), f"p{number}"
        info = PodInfo(f"u-{name}", "ml", name, "Running", "Job", "train")
        one = used(name, held=60 * NS, info=info)
        usage = account(GPU, one, until=until, forgotten=(0, forgotten, 0))
        ended = holding(name, GPU, serial=number, end=until, info=info)
        ledger.accumulator.add_snapshot(SNAPSHOT(usage, ended=[ended]))
        forgotten += 60 * NS
    batch, accumulator = ledger.accumulator._batch, ledger.accumulator
    assert len(batch.pods) <= 101
    assert max(len(batch.hours), len(batch.holdings)) <= 100
    assert max(len(accumulator._pods), len(accumulator._open_holdings)) <= 2
    ledger.commit()
    assert_adds_up(ledger.window())
    named = [one.container.owner_name for one in ledger.window().usage if one.container is not None]
    assert set(named) == {"train"}, "the workload of the remaining ones is kept"
    ledger.close()


def test_a_new_file_gets_a_holding_that_has_ended_and_is_not_final(tmp_path: Path) -> None:
    """If podgpu is killed then, the next podgpu ends the holding."""
    ledger = OpenLedger(tmp_path / "usage.db")
    running = holding("a", GPU, until=at(10), held=10 * NS)
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account(GPU, used("a", held=10 * NS, holding=running), until=at(10)))
    )
    over = replace(running, end=at(10))
    one = used("a", held=10 * NS, ended=at(10), closing=(over,))
    ledger.accumulator.add_snapshot(SNAPSHOT(account(GPU, one, until=at(20), unheld=10 * NS)))
    ledger.commit()
    ledger.accumulator.rewrite_all()
    other = OpenLedger(tmp_path / "other.db")
    other.store.write_batch(ledger.accumulator.take_batch())
    (state,) = OpenLedger(tmp_path / "other.db").stored.accounts.values()
    (container,) = state.containers
    assert container.closing == (over,)
    assert other.rows("SELECT until_ns, end_ns FROM holdings") == [(at(10).wall_ns, None)]
