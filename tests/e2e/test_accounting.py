"""Compare the accounting with an independent reference: more scenarios, and real processes.

`python -m tests.accounting` and `python -m tests.accounting.processes` run any number of them.
"""

from pathlib import Path

import pytest
from blockbuster import BlockBuster

from tests.accounting import checking, processes
from tests.accounting.test_stories import STORIES
from tests.e2e import debian

ALL = 1000
REAL = 4


@pytest.mark.timeout(600)
def test_a_thousand_scenarios_match_the_reference(
    blockbuster: BlockBuster,
) -> None:
    blockbuster.deactivate()  # with virtual time, blocking calls are intended
    differ = {seed: found for seed in range(STORIES, ALL) if (found := checking.check(seed))}
    assert not differ


@pytest.fixture(scope="module")
def faketime() -> Path:
    try:
        return debian.faketime()
    except RuntimeError as error:
        pytest.skip(f"libfaketime is not available: {error}")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(REAL))
def test_a_podgpu_that_is_killed_while_the_clock_is_set_accounts_for_all_time(
    seed: int, faketime: Path
) -> None:
    """T7, T8."""
    assert processes.check(seed, faketime) == []
