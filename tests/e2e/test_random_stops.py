"""R5, R6: podgpu is stopped at random times; `python -m tests.soak.moments 1000` runs more."""

from tests.soak import moments

SEED = 20


def test_r5_r6_a_stop_at_a_random_time_leaves_consistent_files() -> None:
    assert moments.run(2 * len(moments.STORIES), SEED) == []
