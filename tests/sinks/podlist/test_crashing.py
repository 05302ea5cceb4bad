"""podgpu is killed during a write, at each of its system calls."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def deaths(folder: Path, way: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.podlist.crashing", folder, way],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        timeout=25,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def pods(text: str) -> list[str]:
    first, *rest = json.loads(text)
    assert first == {"theirs": 1}
    return [entry["name"] for entry in rest]


@pytest.mark.slow
def test_a_killed_replacement_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    found = deaths(tmp_path, "rename")
    assert len(found) > 4 * 10
    assert {death["status"] for death in found} == {0, 77}
    for death in found:
        assert pods(death["found"]) in (death["old"], death["new"]), death
        assert pods(death["repaired"]) == death["new"]
        assert death["files"] == ["podlist.json"]


@pytest.mark.slow
def test_a_killed_write_in_place_is_incomplete_and_repaired_at_the_next_start(
    tmp_path: Path,
) -> None:
    found = deaths(tmp_path, "inplace")
    halves = 0
    for death in found:
        try:
            halves += pods(death["found"]) not in (death["old"], death["new"])
        except json.JSONDecodeError:
            halves += 1
        assert pods(death["repaired"]) == death["new"]
    assert 0 < halves <= 4  # the write itself, once in each change
