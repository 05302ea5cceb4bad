"""Which part of an account the ledger counts, and how it records holdings and gaps."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger import write_batch
from pipeline.ledger.change_tracker import LedgerAccumulator
from pipeline.ledger.queries import read_holdings
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import NS, ContainerUsage, DeviceUsage, Holding, Instant, PodInfo
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, assert_adds_up, moved
from tests.support.nodes import START, at, gpu, mig
from tests.support.usage import account, holding, used

GPU = gpu(0)


def account_until(
    until: float, *containers: ContainerUsage, start: Instant = START, gap: int = 0
) -> DeviceUsage:
    """Return an account; all time without containers and gaps is unheld."""
    end = at(until)
    held = sum(one.held_ns for one in containers)
    unheld = end.mono_ns - start.mono_ns - gap * NS - held
    return account(GPU, *containers, start=start, until=end, unheld=unheld)


def totals(ledger: OpenLedger) -> tuple[int, int]:
    """Return the seconds that are accounted for, and those that are gaps."""
    ledger.commit()
    window = ledger.window()
    assert_adds_up(window)
    (total,) = window.totals or (None,)
    return (total.accounted_ns // NS, total.gap_ns // NS) if total else (0, 0)


@pytest.fixture
def ledger(tmp_path: Path) -> OpenLedger:
    return OpenLedger(tmp_path / "usage.db")


SNAPSHOT = Snapshots()


def test_an_account_newer_than_the_ledger_counts_from_its_start(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30, start=at(10))))
    assert totals(ledger) == (20, 0)


def test_an_account_older_than_the_ledger_counts_from_now_on(tmp_path: Path) -> None:
    ledger = OpenLedger(tmp_path / "usage.db", at(100))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(110)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(115)))
    assert totals(ledger) == (5, 0)


def reopened(ledger: OpenLedger, seconds: float) -> OpenLedger:
    ledger.commit()
    ledger.close()
    return OpenLedger(ledger.path, at(seconds))


def test_a_restored_account_counts_its_increase_and_the_time_between_is_a_gap(
    ledger: OpenLedger,
) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30)))
    ledger = reopened(ledger, 50)
    before = ledger.accumulator._accounts[GPU.uuid]
    ledger.accumulator.add_snapshot(SNAPSHOT(before))
    ledger.accumulator.add_snapshot(SNAPSHOT(replace(before, at=at(60))))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(65, gap=30)))
    assert totals(ledger) == (35, 30)
    (gap,) = ledger.window().gaps
    assert (gap.start_ns, gap.end_ns, gap.reason) == (at(30).wall_ns, at(60).wall_ns, "down")


def test_an_account_that_starts_after_the_end_of_the_file_counts_fully(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30)))
    ledger = reopened(ledger, 50)
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(70, start=at(60))))
    assert totals(ledger) == (40, 30)


def test_an_account_that_started_while_another_podgpu_wrote_counts_from_now_on(
    ledger: OpenLedger,
) -> None:
    """For example, a pod that waited for the ledger: the other podgpu has counted that time."""
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30)))
    ledger.commit()
    ledger = OpenLedger(ledger.path, at(5), at(38))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(40, start=at(10))))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(45, start=at(10))))
    assert totals(ledger) == (35, 10)


def test_a_break_between_two_samples_is_one_gap(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(100, gap=90)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(130, gap=120)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(135, gap=120)))
    assert totals(ledger) == (15, 120)
    (gap,) = ledger.window().gaps
    assert (gap.start_ns, gap.end_ns, gap.reason) == (at(10).wall_ns, at(130).wall_ns, "blind")


def test_the_wall_clock_may_be_set_between_samples(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10)))
    later = moved(at(10), 5, wall=-7200)
    ledger.accumulator.add_snapshot(SNAPSHOT(replace(account_until(15), at=later)))
    assert totals(ledger) == (15, 0)
    hours = ledger.rows("SELECT hour FROM device_hours ORDER BY hour")
    assert [row[0] for row in hours] == [later.wall_ns // HOUR_NS, START.wall_ns // HOUR_NS]


def test_a_slewed_clock_makes_no_gap(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30)))
    ledger = reopened(ledger, 31)
    stored = ledger.accumulator._accounts[GPU.uuid]
    ledger.accumulator._accounts[GPU.uuid] = replace(
        stored, at=replace(stored.at, mono_ns=stored.at.mono_ns - 10**6)
    )
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(35)))
    assert totals(ledger) == (35, 0)
    assert ledger.window().gaps == ()


def test_a_gpu_with_mig_instances_has_energy_and_no_gaps(tmp_path: Path) -> None:
    ledger, snapshot_of = OpenLedger(tmp_path / "usage.db"), Snapshots.of(GPU, mig(GPU, 3))
    for second in (0, 5, 10):
        ledger.accumulator.add_snapshot(
            snapshot_of(account(GPU, until=at(second), energy=second * 100))
        )
    ledger.commit()
    (total,) = ledger.window().totals
    assert (total.accounted_ns, total.gap_ns, total.energy_mj) == (0, 0, 1000)
    assert ledger.window().gaps == ()


def test_unknown_amounts_stay_unknown(ledger: OpenLedger) -> None:
    one = used("a", held=4 * NS)
    unknown = account(GPU, one, until=at(10), unheld=6 * NS, busy=None, energy=None)
    ledger.accumulator.add_snapshot(SNAPSHOT(unknown))
    ledger.commit()
    assert [(s.busy_ns, s.energy_mj) for s in ledger.window().usage] == [(None, None)] * 2
    known = used("a", held=9 * NS, busy=NS, energy=7)
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account(GPU, known, until=at(15), unheld=6 * NS, busy=0, energy=0))
    )
    ledger.commit()
    assert [(s.busy_ns, s.energy_mj) for s in ledger.window().usage] == [(NS, 7), (0, 0)]


def running(until: float, **more: object) -> ContainerUsage:
    made = holding("a", GPU, until=at(until), **more)  # type: ignore[arg-type]
    return used("a", held=round(until) * NS, holding=made)


def ended(end: float, serial: int = 1, pod: str = "a") -> Holding:
    return holding(pod, GPU, end=at(end), serial=serial)


def holdings_in(ledger: OpenLedger) -> list[tuple[str, float | None, float]]:
    """Return the holdings in the file: pod, end and last time, in seconds."""
    ledger.commit()
    found = read_holdings(ledger._connection, 0, 1 << 62)
    return [
        (
            one.container.subject.pod,
            None if one.end_ns is None else (one.end_ns - START.wall_ns) / NS,
            (one.until_ns - START.wall_ns) / NS,
        )
        for one in sorted(found, key=lambda one: one.container.subject.pod)
    ]


def test_a_holding_has_the_same_row_while_it_continues_and_when_it_has_ended(
    ledger: OpenLedger,
) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    assert holdings_in(ledger) == [("a", None, 5)]
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10, running(10))))
    assert holdings_in(ledger) == [("a", None, 10)]
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account_until(15, used("a", held=12 * NS)), ended=[ended(12)])
    )
    assert holdings_in(ledger) == [("a", 12, 12)]
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account_until(20, used("a", held=12 * NS)), ended=[ended(12), ended(19, 2, "b")])
    )
    assert holdings_in(ledger) == [("a", 12, 12), ("b", 19, 19)]


def test_a_holding_continues_in_the_same_row_after_a_restart(ledger: OpenLedger) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger = reopened(ledger, 20)
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30, running(30), gap=10)))
    assert holdings_in(ledger) == [("a", None, 30)]


def test_a_holding_that_has_ended_and_is_not_final_is_left_to_the_next_podgpu(
    ledger: OpenLedger,
) -> None:
    """If podgpu is killed before it is final, the next one ends it: only the account has it."""
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    not_final = used("a", held=5 * NS, ended=at(7), closing=(ended(7),))
    over = used("a", held=5 * NS, ended=at(7))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10, not_final)))
    assert holdings_in(ledger) == [("a", None, 7)]
    ledger = reopened(ledger, 20)
    (container,) = ledger.stored.accounts[GPU.uuid].containers
    assert container.ended == at(7)
    assert container.closing == (ended(7),)
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(15, over), ended=[ended(7)]))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(20, over)))
    assert holdings_in(ledger) == [("a", 7, 7)]
    (container,) = reopened(ledger, 30).stored.accounts[GPU.uuid].containers
    assert (container.holding, container.closing) == (None, ())


def test_a_holding_that_is_no_longer_reported_ends_when_it_was_last_seen(
    ledger: OpenLedger,
) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger = reopened(ledger, 20)
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(30, gap=10)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(629, gap=10)))
    assert holdings_in(ledger) == [("a", None, 5)]
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(631, gap=10)))
    assert holdings_in(ledger) == [("a", 5, 5)]
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(640, running(640), gap=10)))
    assert holdings_in(ledger) == [("a", None, 640)], "the account contains it again"


def test_holdings_that_were_evicted_before_the_ledger_saw_them_are_counted(
    ledger: OpenLedger,
) -> None:
    for when, serial in ((5, 7), (6, 8), (7, 12), (8, 13)):
        ledger.accumulator.add_snapshot(SNAPSHOT(account_until(when), ended=[ended(4, serial)]))
    assert ledger.accumulator.missed_holdings == 3, (
        "9 to 11; what ended before the first did not belong to this ledger"
    )


def test_labels_are_limited_and_omitted_ones_are_counted(ledger: OpenLedger) -> None:
    labels = tuple((f"name-{number:03}", "v" * 60) for number in range(100))
    info = PodInfo("u-a", "ml", "a", "Running", "Job", "train", labels=labels)
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, used("a", held=5 * NS, info=info))))
    ledger.commit()
    ((length, cut),) = ledger.rows("SELECT length(labels), labels_cut FROM containers")
    assert isinstance(length, int)
    assert isinstance(cut, int)
    assert 4000 < length <= 4096
    (spent, _) = ledger.window().usage
    assert spent.container is not None
    assert len(spent.container.labels) == 100 - cut
    assert (spent.container.owner_kind, spent.container.owner_name) == ("Job", "train")


def test_the_same_batch_twice_counts_once(ledger: OpenLedger) -> None:
    """A commit that was reported as failed may be in the file."""
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10)))
    batch = ledger.accumulator.take_batch()
    ledger.store.write_batch(batch)
    ledger.store.write_batch(batch)
    assert totals(ledger) == (10, 0)


def test_a_batch_that_can_not_be_written_is_limited_and_still_sums_to_the_total(
    ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_batch, "MAX_HOURS", 10)
    monkeypatch.setattr(write_batch, "MAX_HOLDINGS", 10)
    for number in range(1, 40):
        containers = [used(f"p{one}", held=one * NS) for one in range(1, number + 1)]
        seconds = number * 1800
        ends = [ended(seconds, serial, f"e{serial}") for serial in range(1, number + 1)]
        ledger.accumulator.add_snapshot(SNAPSHOT(account_until(seconds, *containers), ended=ends))
    batch = ledger.accumulator._batch
    assert batch.evicted["hours"] > 20
    assert batch.evicted["holdings"] >= 20
    assert max(len(batch.hours), len(batch.holdings)) <= 20
    ledger.commit()
    assert_adds_up(ledger.window())


def test_a_new_file_gets_everything_that_is_known(ledger: OpenLedger, tmp_path: Path) -> None:
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger.commit()
    other = OpenLedger(tmp_path / "other.db")
    other.accumulator = ledger.accumulator
    other.accumulator.rewrite_all()
    assert holdings_in(other) == [("a", None, 5)]
    assert set(OpenLedger(tmp_path / "other.db").stored.accounts) == {GPU.uuid}
    other.accumulator.add_snapshot(SNAPSHOT(account_until(10, running(10))))
    assert totals(other) == (5, 0)


def test_an_unchanged_snapshot_adds_nothing_to_the_batch(ledger: OpenLedger) -> None:
    snapshot = SNAPSHOT(account_until(5))
    ledger.accumulator.add_snapshot(snapshot)
    ledger.commit()
    ledger.accumulator.add_snapshot(snapshot)
    ledger.accumulator.add_snapshot(replace(snapshot, usage=None))
    assert not ledger.accumulator.has_pending
    assert not LedgerAccumulator(START, {}).has_pending
