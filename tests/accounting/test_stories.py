"""T7, T8, T22, T25: podgpu's results of random stories equal those of the reference.

To play one story again: `python -m tests.accounting --stories 1 --seed SEED`.
"""

import pytest
from blockbuster import BlockBuster

from tests.accounting.checking import check

CHUNK = 25
STORIES = 150
"""The rest of the thousand stories is played in `tests/e2e/test_accounting.py`."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, STORIES, CHUNK))
def test_random_stories_have_the_results_of_the_reference(
    first: int, blockbuster: BlockBuster
) -> None:
    blockbuster.deactivate()  # on virtual time, blocking calls run in the event loop's thread
    differences = {seed: found for seed in range(first, first + CHUNK) if (found := check(seed))}
    assert not differences
