"""T7, T8, T22, T25: random stories come out as the reference says, which knows the docs alone.

A story that doesn't is played again by `python -m tests.accounting --stories 1 --seed SEED`.
"""

import pytest
from blockbuster import BlockBuster

from tests.accounting.checking import check

CHUNK = 25
STORIES = 300
"""The rest of the thousand of each run is played in `tests/e2e/test_accounting.py`."""


@pytest.mark.parametrize("first", range(0, STORIES, CHUNK))
def test_what_comes_of_a_story_is_what_the_reference_says(
    first: int, blockbuster: BlockBuster
) -> None:
    blockbuster.deactivate()  # on virtual time, what blocks is called where it is asked for
    differ = {seed: found for seed in range(first, first + CHUNK) if (found := check(seed))}
    assert not differ
