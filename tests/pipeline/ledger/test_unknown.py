"""What a container did under MPS is unknown in the ledger too: no 0 of the same hour hides that."""

from contextlib import closing
from pathlib import Path

import pytest

from pipeline.model import NS
from tests.pipeline.ledger.keeping import Kept, Shown, account, assert_adds_up, moved
from tests.support.nodes import START, gpu
from tests.support.usage import used

GPU = gpu(0)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("known", "expected"), [(0, (None, None)), (5, (5, 5))], ids=["nothing", "something"]
)
def test_t4_a_0_that_something_unknown_follows_is_not_kept(
    tmp_path: Path, known: int, expected: tuple[int | None, int | None], commits: bool
) -> None:
    kept, shown = Kept(tmp_path / "ledger.db"), Shown()
    with closing(kept):
        # Its total begins at 0, and is unknown once it is a client of MPS.
        given_out: list[int | None] = [None, known, known or None, known or None]
        for step, had in enumerate(given_out):
            until = moved(START, 5 * step)
            one = used("a", held=5 * NS * step, busy=had, energy=had)
            # What is drawn goes on, and is nobody's.
            kept.book.add_snapshot(
                shown(account(GPU, one, until=until, busy=100 * step, energy=step))
            )
            if commits:
                kept.commit()
        kept.commit()
        window = kept.window()
    assert_adds_up(window)
    (found,) = [one for one in window.usage if one.container is not None]
    assert found.held_ns == 15 * NS
    assert (found.busy_ns, found.energy_mj) == expected
    (total,) = window.totals
    assert total.busy_ns == 300 + known
