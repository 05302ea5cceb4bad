"""What the ledger keeps in memory is bounded, and what it lays onto hours too."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger import write_batch
from pipeline.ledger.batch_writer import Store
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.file_creation import open_readwrite
from pipeline.model import NS, Instant, PodInfo
from tests.pipeline.ledger.keeping import Kept, Shown, assert_adds_up, window_of
from tests.support.nodes import START, at, gpu
from tests.support.usage import account, holding, used

GPU = gpu(0)
SHOWN = Shown()
DAY = 24 * 3600


@pytest.mark.parametrize("years", [2, 56, 80])
def test_a_clock_that_was_years_off_is_a_gap_of_bounded_length(tmp_path: Path, years: int) -> None:
    """As where the file is of a time before the clock was set: 1970."""
    path = tmp_path / "usage.db"
    before = account(GPU, until=at(100), unheld=100 * NS)
    now = Instant(START.mono_ns + years * 365 * DAY * NS, START.wall_ns + years * 365 * DAY * NS)
    book = LedgerAccumulator(now, {GPU.uuid: before})
    book.add_snapshot(SHOWN(account(GPU, until=now, unheld=110 * NS)))
    batch = book.take_batch()
    assert len(batch.gap_hours) <= 400 * 24 + 1
    connection = open_readwrite(path, "normal")
    Store(connection).write_batch(batch)
    connection.close()
    (gap,) = window_of(path).gaps
    (total,) = window_of(path).totals
    assert gap.end_ns - gap.start_ns == total.gap_ns == 400 * DAY * NS
    assert total.accounted_ns == 10 * NS


def test_short_pods_do_not_pile_up_while_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_HOURS", "MAX_HOLDINGS"):
        monkeypatch.setattr(write_batch, name, 50)
    kept = Kept(tmp_path / "usage.db")
    forgotten = 0
    for number in range(1, 1001):
        until, name = at(number * 60), f"p{number}"
        info = PodInfo(f"u-{name}", "ml", name, "Running", "Job", "train")
        one = used(name, held=60 * NS, info=info)
        given_out = account(GPU, one, until=until, forgotten=(0, forgotten, 0))
        ended = holding(name, GPU, serial=number, end=until, info=info)
        kept.book.add_snapshot(SHOWN(given_out, ended=[ended]))
        forgotten += 60 * NS
    batch, book = kept.book._batch, kept.book
    assert len(batch.pods) <= 101
    assert max(len(batch.hours), len(batch.holdings)) <= 100
    assert max(len(book._pods), len(book._open_holdings)) <= 2
    kept.commit()
    assert_adds_up(kept.window())
    named = [one.container.owner_name for one in kept.window().usage if one.container is not None]
    assert set(named) == {"train"}, "what is told of those that are left stays"
    kept.close()


def test_another_file_gets_a_holding_that_has_ended_and_is_not_final(tmp_path: Path) -> None:
    """Should podgpu be killed then, whoever goes on from it ends it."""
    kept = Kept(tmp_path / "usage.db")
    runs = holding("a", GPU, until=at(10), held=10 * NS)
    kept.book.add_snapshot(SHOWN(account(GPU, used("a", held=10 * NS, holding=runs), until=at(10))))
    over = replace(runs, end=at(10))
    one = used("a", held=10 * NS, ended=at(10), closing=(over,))
    kept.book.add_snapshot(SHOWN(account(GPU, one, until=at(20), unheld=10 * NS)))
    kept.commit()
    kept.book.rewrite_all()
    other = Kept(tmp_path / "other.db")
    other.store.write_batch(kept.book.take_batch())
    (state,) = Kept(tmp_path / "other.db").left.accounts.values()
    (container,) = state.containers
    assert container.closing == (over,)
    assert other.rows("SELECT until_ns, end_ns FROM holdings") == [(at(10).wall_ns, None)]
