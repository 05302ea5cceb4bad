"""Two minutes of `make soak`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = 146653140
"""A fixed seed: always the same faults; `make soak` uses random ones."""


@pytest.mark.timeout(300)
def test_two_minutes_of_the_soak_test() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes=2", f"--seed={SEED}"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    print(done.stdout[-10_000:], done.stderr[-3000:])
    assert done.returncode == 0, f"make soak MINUTES=2 SEED={SEED}"
