"""A holding whose end was reported is not reported again after a restart."""

from pathlib import Path

import pytest

from pipeline.ledger.account_state import to_current_clock
from pipeline.model import NS, Holding
from pipeline.usage import UsageAccounts
from pipeline.usage.device_accounts import PENDING_NS
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots
from tests.pipeline.ledger.test_change_tracker import (
    GPU,
    account_until,
    ended,
    holdings_in,
    reopened,
    running,
    totals,
)
from tests.support.nodes import at, gpu
from tests.support.usage import account, holding, used

SNAPSHOT = Snapshots()
SNAPSHOT_WITHOUT_DEVICE = Snapshots.of(gpu(1))
"""The device has left the layout: it was reconfigured, it is missing, or its source was removed."""

OTHER = account(gpu(1), until=at(30), unheld=30 * NS)


def reported_after_restart(ledger: OpenLedger, seconds: float) -> tuple[Holding, ...]:
    """Return the holdings that end because their device doesn't return."""
    accounts, start = UsageAccounts("again"), at(seconds)
    accounts.restore(to_current_clock(ledger.stored.accounts.values(), start).devices, start)
    assert accounts.expire(at(seconds + 1 + PENDING_NS / NS))
    usage = accounts.ended()
    return usage.ended if usage else ()


def containers_in(ledger: OpenLedger) -> list[tuple[str, bool, bool]]:
    """Return the containers in the file: pod, whether a holding is open, whether it has ended."""
    those = ledger.stored.accounts[GPU.uuid].containers
    return [
        (one.subject.pod, bool(one.holding or one.closing), one.ended is not None) for one in those
    ]


def test_the_end_of_a_holding_whose_device_was_removed_is_stored_in_the_account(
    tmp_path: Path,
) -> None:
    ledger = OpenLedger(tmp_path / "usage.db")
    other = used("b", held=0, holding=holding("b", GPU, until=at(5)))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5), other)))
    ledger.accumulator.add_snapshot(SNAPSHOT_WITHOUT_DEVICE(OTHER, ended=[ended(5)]))
    assert holdings_in(ledger) == [("a", 5, 5), ("b", None, 5)]
    ledger = reopened(ledger, 60)
    assert containers_in(ledger) == [("a", False, True), ("b", True, False)], (
        "the end of b was not reported"
    )
    assert ledger.stored.accounts[GPU.uuid].containers[0].ended == at(5)
    assert [one.subject.pod for one in reported_after_restart(ledger, 60)] == ["b"]


def test_a_holding_whose_device_is_missing_after_a_restart_is_reported_once(
    tmp_path: Path,
) -> None:
    ledger = OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger = reopened(ledger, 60)
    ends = reported_after_restart(ledger, 60)
    assert [one.subject.pod for one in ends] == ["a"]
    ledger.accumulator.add_snapshot(SNAPSHOT_WITHOUT_DEVICE(OTHER, ended=ends))
    ledger = reopened(ledger, 900)
    assert reported_after_restart(ledger, 900) == ()
    assert holdings_in(ledger) == [("a", 5, 5)]


def test_a_holding_that_was_not_final_when_its_device_was_removed_is_stored(tmp_path: Path) -> None:
    not_final = used("a", held=5 * NS, ended=at(7), closing=(ended(7),))
    ledger = OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10, not_final)))
    assert containers_in(reopened(ledger, 10)) == [("a", True, True)]
    ledger = OpenLedger(tmp_path / "other.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(10, not_final)))
    ledger.accumulator.add_snapshot(SNAPSHOT_WITHOUT_DEVICE(OTHER, ended=[ended(7)]))
    assert containers_in(reopened(ledger, 60)) == [("a", False, True)]


def test_a_holding_that_becomes_final_without_a_sample_is_stored(tmp_path: Path) -> None:
    """The driver hangs: the end is reported after some time, and the account is the same."""
    ledger = OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    over = account_until(10, used("a", held=5 * NS, ended=at(7)))
    not_final = account_until(10, used("a", held=5 * NS, ended=at(7), closing=(ended(7),)))
    ledger.accumulator.add_snapshot(SNAPSHOT(not_final))
    ledger.accumulator.add_snapshot(SNAPSHOT(over, ended=[ended(7)]))
    assert containers_in(reopened(ledger, 60)) == [("a", False, True)]


def test_a_device_that_returns_counts_its_increase(tmp_path: Path) -> None:
    ledger = OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger.accumulator.add_snapshot(SNAPSHOT_WITHOUT_DEVICE(ended=[ended(5)]))
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account_until(30, used("a", held=5 * NS, ended=at(5)), gap=10))
    )
    assert totals(ledger) == (20, 10)
    assert ledger.accumulator.inconsistent == 0


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(6, [], id="before the start of the ledger"),
        pytest.param(31, [("a", 31.0, 31.0)], id="after the start of the ledger"),
    ],
)
def test_a_new_ledger_does_not_contain_holdings_that_ended_before_it(
    tmp_path: Path, end: float, expected: list[tuple[str, float, float]]
) -> None:
    ledger = OpenLedger(tmp_path / "usage.db", at(30))
    over = used("a", held=5 * NS, ended=at(end))
    for seconds in (32, 40):
        ledger.accumulator.add_snapshot(SNAPSHOT(account_until(seconds, over), ended=[ended(end)]))
    assert holdings_in(ledger) == expected


def test_a_new_ledger_contains_the_past_of_a_continuing_holding(tmp_path: Path) -> None:
    ledger = OpenLedger(tmp_path / "usage.db", at(30))
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(35, running(35))))
    ledger.commit()
    assert ledger.rows("SELECT start_ns, held_ns FROM holdings") == [(at(0).wall_ns, 35 * NS)]
    assert totals(ledger) == (0, 0)


def test_holdings_that_ended_while_the_ledger_was_closed_are_recorded(tmp_path: Path) -> None:
    """For example, while the sink is reloaded: holdings may start and end in between."""
    ledger = OpenLedger(tmp_path / "usage.db")
    ledger.accumulator.add_snapshot(SNAPSHOT(account_until(5, running(5))))
    ledger = reopened(ledger, 30)
    over = (used("a", held=5 * NS, ended=at(7)), used("b", held=2 * NS, ended=at(9)))
    ledger.accumulator.add_snapshot(
        SNAPSHOT(account_until(35, *over), ended=[ended(7), ended(9, 2, "b")])
    )
    assert holdings_in(ledger) == [("a", 7, 7), ("b", 9, 9)]
