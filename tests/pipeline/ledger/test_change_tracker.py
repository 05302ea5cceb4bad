"""What of an account counts, when, and what becomes of holdings and gaps."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger import write_batch
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.queries import read_holdings
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS, ContainerUsage, DeviceUsage, Holding, Instant, PodInfo
from tests.pipeline.ledger.keeping import Kept, Shown, assert_adds_up, moved
from tests.support.nodes import START, at, gpu, mig
from tests.support.usage import account, holding, used

GPU = gpu(0)


def looked(until: float, *had: ContainerUsage, start: Instant = START, gap: int = 0) -> DeviceUsage:
    """An account that was all the time of nobody, but for what containers had."""
    end = at(until)
    held = sum(one.held_ns for one in had)
    unheld = end.mono_ns - start.mono_ns - gap * NS - held
    return account(GPU, *had, start=start, until=end, unheld=unheld)


def totals(kept: Kept) -> tuple[int, int]:
    """Seconds of which there is an account, and those of which there is none."""
    kept.commit()
    window = kept.window()
    assert_adds_up(window)
    (total,) = window.totals or (None,)
    return (total.accounted_ns // NS, total.gap_ns // NS) if total else (0, 0)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "usage.db")


SHOWN = Shown()


def test_an_account_that_began_after_the_ledger_counts_from_its_start(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(30, start=at(10))))
    assert totals(kept) == (20, 0)


def test_an_account_that_is_older_than_the_ledger_counts_from_now_on(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "usage.db", at(100))
    kept.book.add_snapshot(SHOWN(looked(110)))
    kept.book.add_snapshot(SHOWN(looked(115)))
    assert totals(kept) == (5, 0)


def again(kept: Kept, seconds: float) -> Kept:
    kept.commit()
    kept.close()
    return Kept(kept.path, at(seconds))


def test_one_that_continues_from_the_file_counts_what_it_gains_and_the_time_between_is_a_gap(
    kept: Kept,
) -> None:
    kept.book.add_snapshot(SHOWN(looked(30)))
    kept = again(kept, 50)
    before = kept.book._accounts[GPU.uuid]
    kept.book.add_snapshot(SHOWN(before))
    kept.book.add_snapshot(SHOWN(replace(before, at=at(60))))
    kept.book.add_snapshot(SHOWN(looked(65, gap=30)))
    assert totals(kept) == (35, 30)
    (gap,) = kept.window().gaps
    assert (gap.start_ns, gap.end_ns, gap.reason) == (at(30).wall_ns, at(60).wall_ns, "down")


def test_one_that_begins_after_the_file_ends_counts_whole(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(30)))
    kept = again(kept, 50)
    kept.book.add_snapshot(SHOWN(looked(70, start=at(60))))
    assert totals(kept) == (40, 30)


def test_one_that_began_while_another_podgpu_wrote_counts_from_now_on(kept: Kept) -> None:
    """As of a pod that waited for the ledger: of that time the other has told already."""
    kept.book.add_snapshot(SHOWN(looked(30)))
    kept.commit()
    kept = Kept(kept.path, at(5), at(38))
    kept.book.add_snapshot(SHOWN(looked(40, start=at(10))))
    kept.book.add_snapshot(SHOWN(looked(45, start=at(10))))
    assert totals(kept) == (35, 10)


def test_a_break_between_two_looks_is_one_gap(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(10)))
    kept.book.add_snapshot(SHOWN(looked(100, gap=90)))
    kept.book.add_snapshot(SHOWN(looked(130, gap=120)))
    kept.book.add_snapshot(SHOWN(looked(135, gap=120)))
    assert totals(kept) == (15, 120)
    (gap,) = kept.window().gaps
    assert (gap.start_ns, gap.end_ns, gap.reason) == (at(10).wall_ns, at(130).wall_ns, "blind")


def test_the_wall_clock_may_be_set_meanwhile(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(10)))
    later = moved(at(10), 5, wall=-7200)
    kept.book.add_snapshot(SHOWN(replace(looked(15), at=later)))
    assert totals(kept) == (15, 0)
    hours = kept.rows("SELECT hour FROM device_hours ORDER BY hour")
    assert [row[0] for row in hours] == [later.wall_ns // HOUR_NS, START.wall_ns // HOUR_NS]


def test_a_slewed_clock_is_no_gap(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(30)))
    kept = again(kept, 31)
    seen = kept.book._accounts[GPU.uuid]
    kept.book._accounts[GPU.uuid] = replace(
        seen, at=replace(seen.at, mono_ns=seen.at.mono_ns - 10**6)
    )
    kept.book.add_snapshot(SHOWN(looked(35)))
    assert totals(kept) == (35, 0)
    assert kept.window().gaps == ()


def test_a_gpu_that_carries_instances_has_energy_and_no_gaps(tmp_path: Path) -> None:
    kept, shown = Kept(tmp_path / "usage.db"), Shown.of(GPU, mig(GPU, 3))
    for second in (0, 5, 10):
        kept.book.add_snapshot(shown(account(GPU, until=at(second), energy=second * 100)))
    kept.commit()
    (total,) = kept.window().totals
    assert (total.accounted_ns, total.gap_ns, total.energy_mj) == (0, 0, 1000)
    assert kept.window().gaps == ()


def test_what_is_unknown_stays_unknown(kept: Kept) -> None:
    one = used("a", held=4 * NS)
    unknown = account(GPU, one, until=at(10), unheld=6 * NS, busy=None, energy=None)
    kept.book.add_snapshot(SHOWN(unknown))
    kept.commit()
    assert [(s.busy_ns, s.energy_mj) for s in kept.window().usage] == [(None, None)] * 2
    known = used("a", held=9 * NS, busy=NS, energy=7)
    kept.book.add_snapshot(
        SHOWN(account(GPU, known, until=at(15), unheld=6 * NS, busy=0, energy=0))
    )
    kept.commit()
    assert [(s.busy_ns, s.energy_mj) for s in kept.window().usage] == [(NS, 7), (0, 0)]


def runs(until: float, **more: object) -> ContainerUsage:
    made = holding("a", GPU, until=at(until), **more)  # type: ignore[arg-type]
    return used("a", held=round(until) * NS, holding=made)


def ended(end: float, serial: int = 1, pod: str = "a") -> Holding:
    return holding(pod, GPU, end=at(end), serial=serial)


def given_out(kept: Kept) -> list[tuple[str, float | None, float]]:
    """Holdings in the file: pod, end and until, in seconds."""
    kept.commit()
    found = read_holdings(kept._connection, 0, 1 << 62)
    return [
        (
            one.container.subject.pod,
            None if one.end_ns is None else (one.end_ns - START.wall_ns) / NS,
            (one.until_ns - START.wall_ns) / NS,
        )
        for one in sorted(found, key=lambda one: one.container.subject.pod)
    ]


def test_a_holding_has_a_row_while_it_continues_and_one_when_it_has_ended(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    assert given_out(kept) == [("a", None, 5)]
    kept.book.add_snapshot(SHOWN(looked(10, runs(10))))
    assert given_out(kept) == [("a", None, 10)]
    kept.book.add_snapshot(SHOWN(looked(15, used("a", held=12 * NS)), ended=[ended(12)]))
    assert given_out(kept) == [("a", 12, 12)]
    kept.book.add_snapshot(
        SHOWN(looked(20, used("a", held=12 * NS)), ended=[ended(12), ended(19, 2, "b")])
    )
    assert given_out(kept) == [("a", 12, 12), ("b", 19, 19)]


def test_a_holding_continues_over_a_restart_in_the_same_row(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept = again(kept, 20)
    kept.book.add_snapshot(SHOWN(looked(30, runs(30), gap=10)))
    assert given_out(kept) == [("a", None, 30)]


def test_one_that_has_ended_and_is_not_final_is_left_to_who_continues(kept: Kept) -> None:
    """Killed in between, podgpu has to end it at its start: nothing else knows what it had."""
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    waits = used("a", held=5 * NS, ended=at(7), closing=(ended(7),))
    over = used("a", held=5 * NS, ended=at(7))
    kept.book.add_snapshot(SHOWN(looked(10, waits)))
    assert given_out(kept) == [("a", None, 7)]
    kept = again(kept, 20)
    (left,) = kept.left.accounts[GPU.uuid].containers
    assert left.ended == at(7)
    assert left.closing == (ended(7),)
    kept.book.add_snapshot(SHOWN(looked(15, over), ended=[ended(7)]))
    kept.book.add_snapshot(SHOWN(looked(20, over)))
    assert given_out(kept) == [("a", 7, 7)]
    (left,) = again(kept, 30).left.accounts[GPU.uuid].containers
    assert (left.holding, left.closing) == (None, ())


def test_a_holding_of_which_no_one_reports_any_more_ends_where_it_was_last_seen(kept: Kept) -> None:
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept = again(kept, 20)
    kept.book.add_snapshot(SHOWN(looked(30, gap=10)))
    kept.book.add_snapshot(SHOWN(looked(629, gap=10)))
    assert given_out(kept) == [("a", None, 5)]
    kept.book.add_snapshot(SHOWN(looked(631, gap=10)))
    assert given_out(kept) == [("a", 5, 5)]
    kept.book.add_snapshot(SHOWN(looked(640, runs(640), gap=10)))
    assert given_out(kept) == [("a", None, 640)], "somebody tells of it again"


def test_what_was_release_of_before_the_ledger_saw_it_is_counted(kept: Kept) -> None:
    for when, serial in ((5, 7), (6, 8), (7, 12), (8, 13)):
        kept.book.add_snapshot(SHOWN(looked(when), ended=[ended(4, serial)]))
    assert kept.book.missed_holdings == 3, (
        "9 to 11; what ended before the first wasn't for this ledger"
    )


def test_labels_are_bounded_and_those_left_out_are_counted(kept: Kept) -> None:
    labels = tuple((f"name-{number:03}", "v" * 60) for number in range(100))
    info = PodInfo("u-a", "ml", "a", "Running", "Job", "train", labels=labels)
    kept.book.add_snapshot(SHOWN(looked(5, used("a", held=5 * NS, info=info))))
    kept.commit()
    ((length, cut),) = kept.rows("SELECT length(labels), labels_cut FROM containers")
    assert isinstance(length, int)
    assert isinstance(cut, int)
    assert 4000 < length <= 4096
    (spent, _) = kept.window().usage
    assert spent.container is not None
    assert len(spent.container.labels) == 100 - cut
    assert (spent.container.owner_kind, spent.container.owner_name) == ("Job", "train")


def test_the_same_batch_twice_counts_once(kept: Kept) -> None:
    """A commit that failed for all that is known may be in the file."""
    kept.book.add_snapshot(SHOWN(looked(10)))
    batch = kept.book.take_batch()
    kept.store.write_batch(batch)
    kept.store.write_batch(batch)
    assert totals(kept) == (10, 0)


def test_what_waits_is_bounded_counted_and_adds_up(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_batch, "MAX_HOURS", 10)
    monkeypatch.setattr(write_batch, "MAX_HOLDINGS", 10)
    for number in range(1, 40):
        had = [used(f"p{one}", held=one * NS) for one in range(1, number + 1)]
        seconds = number * 1800
        ends = [ended(seconds, serial, f"e{serial}") for serial in range(1, number + 1)]
        kept.book.add_snapshot(SHOWN(looked(seconds, *had), ended=ends))
    batch = kept.book._batch
    assert batch.evicted["hours"] > 20
    assert batch.evicted["holdings"] >= 20
    assert max(len(batch.hours), len(batch.holdings)) <= 20
    kept.commit()
    assert_adds_up(kept.window())


def test_another_file_gets_all_that_is_known(kept: Kept, tmp_path: Path) -> None:
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept.commit()
    other = Kept(tmp_path / "other.db")
    other.book = kept.book
    other.book.rewrite_all()
    assert given_out(other) == [("a", None, 5)]
    assert set(Kept(tmp_path / "other.db").left.accounts) == {GPU.uuid}
    other.book.add_snapshot(SHOWN(looked(10, runs(10))))
    assert totals(other) == (5, 0)


def test_a_snapshot_without_news_costs_nothing(kept: Kept) -> None:
    snapshot = SHOWN(looked(5))
    kept.book.add_snapshot(snapshot)
    kept.commit()
    kept.book.add_snapshot(snapshot)
    kept.book.add_snapshot(replace(snapshot, usage=None))
    assert not kept.book.has_pending
    assert not LedgerAccumulator(START, {}).has_pending
