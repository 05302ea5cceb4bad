"""The accounting against an independent reference: more stories, and stories of real processes.

`python -m tests.accounting` and `python -m tests.accounting.processes` play as many as asked for.
"""

import pytest

from tests.accounting import checking, processes
from tests.accounting.test_stories import STORIES

ALL = 1000
REAL = 4


@pytest.mark.timeout(600)
def test_what_comes_of_a_thousand_stories_is_what_the_reference_says() -> None:
    differ = {seed: found for seed in range(STORIES, ALL) if (found := checking.check(seed))}
    assert not differ


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(REAL))
def test_killed_and_with_its_clock_set_a_real_podgpu_accounts_for_all_time(seed: int) -> None:
    """T7, T8."""
    faketime = processes.library()
    if faketime is None:
        pytest.skip("libfaketime isn't installed: apt-get install libfaketime")
    assert processes.check(seed, faketime) == []
