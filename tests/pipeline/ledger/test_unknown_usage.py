"""Usage of an MPS client is unknown in the ledger too: no 0 of the same hour hides that."""

from contextlib import closing
from pathlib import Path

import pytest

from pipeline.model import NS
from tests.pipeline.ledger.open_ledger import OpenLedger, Snapshots, account, assert_adds_up, moved
from tests.support.nodes import START, gpu
from tests.support.usage import used

GPU = gpu(0)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("known", "expected"), [(0, (None, None)), (5, (5, 5))], ids=["zero before", "some before"]
)
def test_t4_a_0_followed_by_unknown_usage_becomes_unknown(
    tmp_path: Path, known: int, expected: tuple[int | None, int | None], commits: bool
) -> None:
    ledger, snapshot_of = OpenLedger(tmp_path / "ledger.db"), Snapshots()
    with closing(ledger):
        # Its total starts at 0, and is unknown once it is an MPS client.
        totals: list[int | None] = [None, known, known or None, known or None]
        for step, amount in enumerate(totals):
            until = moved(START, 5 * step)
            one = used("a", held=5 * NS * step, busy=amount, energy=amount)
            # Energy continues to be used, and is unattributed.
            ledger.accumulator.add_snapshot(
                snapshot_of(account(GPU, one, until=until, busy=100 * step, energy=step))
            )
            if commits:
                ledger.commit()
        ledger.commit()
        window = ledger.window()
    assert_adds_up(window)
    (found,) = [one for one in window.usage if one.container is not None]
    assert found.held_ns == 15 * NS
    assert (found.busy_ns, found.energy_mj) == expected
    (total,) = window.totals
    assert total.busy_ns == 300 + known


@pytest.mark.parametrize("hours", [1, 2])
@pytest.mark.parametrize(
    ("contested", "expected"), [((0, 3, 8), (8, 16)), ((0, 3, None), (None, None))]
)
def test_the_error_of_busy_time_is_unknown_if_it_is_for_a_part(
    tmp_path: Path,
    contested: tuple[int | None, ...],
    expected: tuple[int | None, int | None],
    hours: int,
) -> None:
    """In the same hour, or in another one."""
    ledger, snapshot_of = OpenLedger(tmp_path / "ledger.db"), Snapshots()
    with closing(ledger):
        for step, amount in enumerate(contested):
            until = moved(START, 5 * step + 3600 * (hours - 1) * step)
            one = used(
                "a",
                held=5 * NS * step,
                busy=10 * step,
                contested=amount,
                switching=None if amount is None else 2 * amount,
            )
            ledger.accumulator.add_snapshot(snapshot_of(account(GPU, one, until=until)))
        ledger.commit()
        (found,) = [each for each in ledger.window().usage if each.container is not None]
    assert (found.busy_ns, found.contested_ns, found.switching_ns) == (20, *expected)
