"""What was told has ended: whoever goes on from the file doesn't tell of it again."""

from pathlib import Path

import pytest

from pipeline.ledger.account_state import to_current_clock
from pipeline.model import NS, Holding
from pipeline.usage.account_ids import Ids
from pipeline.usage.ended_holdings import EndedHoldings
from pipeline.usage.restored_accounts import PENDING_NS, PendingRestores
from tests.pipeline.ledger.keeping import Kept, Shown
from tests.pipeline.ledger.test_change_tracker import (
    GPU,
    again,
    ended,
    given_out,
    looked,
    runs,
    totals,
)
from tests.support.nodes import at, gpu
from tests.support.usage import account, holding, used

SHOWN = Shown()
GONE = Shown.of(gpu(1))
"""The device has left the layout: its GPU was cut anew or is missing, or its source was removed."""

OTHER = account(gpu(1), until=at(30), unheld=30 * NS)


def reported_after_restart(kept: Kept, seconds: float) -> tuple[Holding, ...]:
    """What the accounts tell of at last, where the device doesn't come back."""
    ends = EndedHoldings()
    waiting = PendingRestores(ends, Ids("again"))
    waiting.put(to_current_clock(kept.left.accounts.values(), at(seconds)).devices, at(seconds))
    assert waiting.expire(at(seconds + 1 + PENDING_NS / NS))
    return ends.holdings()


def left(kept: Kept) -> list[tuple[str, bool, bool]]:
    """Containers as they stand in the file: pod, whether a holding is open, whether it ended."""
    those = kept.left.accounts[GPU.uuid].containers
    return [
        (one.subject.pod, bool(one.holding or one.closing), one.ended is not None) for one in those
    ]


def test_the_end_of_one_whose_device_has_left_is_in_the_account_too(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "usage.db")
    other = used("b", held=0, holding=holding("b", GPU, until=at(5)))
    kept.book.add_snapshot(SHOWN(looked(5, runs(5), other)))
    kept.book.add_snapshot(GONE(OTHER, ended=[ended(5)]))
    assert given_out(kept) == [("a", 5, 5), ("b", None, 5)]
    kept = again(kept, 60)
    assert left(kept) == [("a", False, True), ("b", True, False)], "nobody has told of b"
    assert kept.left.accounts[GPU.uuid].containers[0].ended == at(5)
    assert [one.subject.pod for one in reported_after_restart(kept, 60)] == ["b"]


def test_a_device_that_is_missing_after_a_restart_is_reported_of_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept = again(kept, 60)
    ends = reported_after_restart(kept, 60)
    assert [one.subject.pod for one in ends] == ["a"]
    kept.book.add_snapshot(GONE(OTHER, ended=ends))
    kept = again(kept, 900)
    assert reported_after_restart(kept, 900) == ()
    assert given_out(kept) == [("a", 5, 5)]


def test_one_that_had_ended_and_was_not_final_when_its_device_left(tmp_path: Path) -> None:
    waits = used("a", held=5 * NS, ended=at(7), closing=(ended(7),))
    kept = Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept.book.add_snapshot(SHOWN(looked(10, waits)))
    assert left(again(kept, 10)) == [("a", True, True)]
    kept = Kept(tmp_path / "other.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept.book.add_snapshot(SHOWN(looked(10, waits)))
    kept.book.add_snapshot(GONE(OTHER, ended=[ended(7)]))
    assert left(again(kept, 60)) == [("a", False, True)]


def test_one_that_is_final_without_another_look_at_its_device(tmp_path: Path) -> None:
    """The driver hangs: its end is told once some time has passed, and the account is the same."""
    kept = Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    over = looked(10, used("a", held=5 * NS, ended=at(7)))
    waits = looked(10, used("a", held=5 * NS, ended=at(7), closing=(ended(7),)))
    kept.book.add_snapshot(SHOWN(waits))
    kept.book.add_snapshot(SHOWN(over, ended=[ended(7)]))
    assert left(again(kept, 60)) == [("a", False, True)]


def test_a_device_that_comes_back_has_gained_what_it_gained(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept.book.add_snapshot(GONE(ended=[ended(5)]))
    kept.book.add_snapshot(SHOWN(looked(30, used("a", held=5 * NS, ended=at(5)), gap=10)))
    assert totals(kept) == (20, 10)
    assert kept.book.inconsistent == 0


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(6, [], id="before the ledger"),
        pytest.param(31, [("a", 31.0, 31.0)], id="after it began"),
    ],
)
def test_a_new_ledger_has_none_that_ended_before_it(
    tmp_path: Path, end: float, expected: list[tuple[str, float, float]]
) -> None:
    kept = Kept(tmp_path / "usage.db", at(30))
    over = used("a", held=5 * NS, ended=at(end))
    for seconds in (32, 40):
        kept.book.add_snapshot(SHOWN(looked(seconds, over), ended=[ended(end)]))
    assert given_out(kept) == expected


def test_one_that_continues_brings_its_past_into_a_new_ledger(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "usage.db", at(30))
    kept.book.add_snapshot(SHOWN(looked(35, runs(35))))
    kept.commit()
    assert kept.rows("SELECT start_ns, held_ns FROM holdings") == [(at(0).wall_ns, 35 * NS)]
    assert totals(kept) == (0, 0)


def test_a_ledger_that_continues_has_those_that_ended_while_it_was_closed(tmp_path: Path) -> None:
    """As over a reload of the sink: some began and ended in between."""
    kept = Kept(tmp_path / "usage.db")
    kept.book.add_snapshot(SHOWN(looked(5, runs(5))))
    kept = again(kept, 30)
    over = (used("a", held=5 * NS, ended=at(7)), used("b", held=2 * NS, ended=at(9)))
    kept.book.add_snapshot(SHOWN(looked(35, *over), ended=[ended(7), ended(9, 2, "b")]))
    assert given_out(kept) == [("a", 7, 7), ("b", 9, 9)]
