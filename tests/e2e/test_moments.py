"""R5, R6: podgpu ended at random moments; `python -m tests.soak.moments 1000` for many."""

from tests.soak import moments

SEED = 20


def test_r5_r6_at_a_random_moment_it_ends_as_the_readme_says_and_leaves_nothing_half() -> None:
    assert moments.run(2 * len(moments.STORIES), SEED) == []
