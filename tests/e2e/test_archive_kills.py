"""Whatever is killed, and whenever: the archive has exactly what the ledgers had."""

import os

import pytest

from tests.e2e.archive_kills import play


@pytest.mark.timeout(300)
def test_the_archive_equals_the_ledgers_whatever_is_killed() -> None:
    """`python -m tests.e2e.archive_kills --runs 500` plays more stories."""
    seed = int(os.environ.get("PODGPU_E2E_SEED", "1000"))
    counts = play(int(os.environ.get("PODGPU_E2E_KILLS", "10")), seed)
    # Otherwise this test would be one of a quiet day.
    assert sum(count for what, count in counts.items() if what.startswith("killed: write")) > 5
    assert sum(count for what, count in counts.items() if what.startswith("killed: comp")) > 2
    assert counts["killed: server"] > 1
