"""A kill at any moment loses only what was not committed, and that time is a gap.

`PODGPU_LEDGER_KILLS=100` for a long run, `PODGPU_LEDGER_SEED` to repeat a run.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.ledger.account_state import load
from pipeline.ledger.file_open import open_readonly
from pipeline.ledger.queries import read_holdings
from pipeline.model import NS
from pipeline.model.ledger_usage import UsageWindow
from tests.pipeline.ledger.open_ledger import FOREVER, assert_adds_up, query, window_of
from tests.sinks.ledger import driver

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("PODGPU_LEDGER_KILLS", "3"))
SEED = int(os.environ.get("PODGPU_LEDGER_SEED", "0")) or random.randrange(1 << 30)
LONG = 60 + 15 * KILLS
SLACK_NS = 2 * NS
"""How long a busy machine may delay a process."""
EXACT_NS = driver.COMMIT_INTERVAL * NS / 5
"""By how much the clocks may differ; the shortest commit interval is five times as long."""
CALLS = ("pwrite64", "fcntl")


def start(path: Path, seconds: float, *before: str) -> "subprocess.Popen[bytes]":
    until_ns = time.time_ns() + round(seconds * NS)
    command = [*before, sys.executable, "-m", "tests.sinks.ledger.driver", str(path), str(until_ns)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)


@dataclass
class KilledWriter:
    """Kill the writer of a ledger repeatedly."""

    path: Path
    chance: random.Random

    def kill_first(self) -> int:
        """Kill it once something is written: before that there is nothing to continue from."""
        with start(self.path, LONG) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"sampled\n"
            while not window_of(self.path).totals:
                time.sleep(0.05)
            process.kill()
        return time.time_ns()

    def kill_once(self) -> int:
        """Start it, kill it, and return the time of the kill."""
        inject = self.chance.random() < 0.5 and shutil.which("strace") is not None
        with start(self.path, 40, *(self._injected() if inject else ())) as process:
            if inject:
                self._await_end(process)
            else:
                assert process.stdout is not None
                assert process.stdout.readline() == b"sampled\n"
                time.sleep(self.chance.uniform(0, 0.7))
                process.kill()
            assert process.wait(60) in (-9, 137)
        return time.time_ns()

    def _await_end(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process is killed by its tracer."""
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise

    def _injected(self) -> list[str]:
        """Return an strace command that kills the process in one of its system calls."""
        call = self.chance.choice(CALLS)
        which = self.chance.randrange(10, 120)
        how = f"inject={call}:signal=KILL:when={which}"
        return ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", f"trace={call}", "-e", how]


@pytest.mark.slow
@pytest.mark.timeout(LONG)
def test_a_killed_ledger_differs_from_an_unkilled_one_by_an_interval_per_kill(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    writer = KilledWriter(tmp_path / "killed.db", chance)
    with start(tmp_path / "whole.db", LONG) as other:
        kills = [writer.kill_first(), *(writer.kill_once() for _ in range(KILLS - 1))]
        with start(writer.path, 6) as last:
            assert last.wait(60) == 0
        other.kill()
    window, whole = window_of(writer.path), window_of(tmp_path / "whole.db")
    for each in (window, whole):
        assert_adds_up(each)
    assert not list(tmp_path.glob("*.corrupt-*")), f"seed {SEED}"
    check_gaps(window, kills)
    check_totals(window, whole, writer.path, tmp_path / "whole.db")
    check_holdings(writer.path)


def check_gaps(window: UsageWindow, kills: list[int]) -> None:
    """Each kill is in a gap, which starts at most one interval before it."""
    gaps = [gap for gap in window.gaps if gap.reason == "down"]
    assert len(gaps) == len(window.gaps), "time with samples isn't accounted for"
    losses = []
    for gap in gaps:
        inside = [moment for moment in kills if gap.start_ns <= moment <= gap.end_ns]
        assert inside, f"a gap without a kill, seed {SEED}"
        losses.append(inside[0] - gap.start_ns)
    covered = [any(gap.start_ns <= moment <= gap.end_ns for gap in gaps) for moment in kills]
    assert all(covered), f"a kill without a gap, seed {SEED}"
    interval_ns = round((driver.COMMIT_INTERVAL + driver.SAMPLE_INTERVAL) * NS)
    print(f"{KILLS} kills, {len(gaps)} gaps, lost before a kill: ", end="")
    print(f"{sum(losses) / len(losses) / 1e6:.0f} ms in the mean, {max(losses) / 1e6:.0f} at most")
    assert max(losses) <= interval_ns + SLACK_NS, f"seed {SEED}"


def check_totals(window: UsageWindow, whole: UsageWindow, killed: Path, whole_path: Path) -> None:
    """Check that time that the other ledger has and this one lacks is a gap, with its usage.

    In each ledger, accounted time and gaps sum to the length of the account.
    """
    (total,), (complete,) = window.totals, whole.totals
    first, last = window.gaps[0].start_ns, window.end_ns
    print(f"accounted {total.accounted_ns / NS:.2f} s, gaps {total.gap_ns / NS:.2f} s, ", end="")
    print(f"never killed {complete.accounted_ns / NS:.2f} s")
    missing = complete.accounted_ns - total.accounted_ns - total.gap_ns
    assert abs(missing) <= SLACK_NS + 3 * NS, f"seed {SEED}"
    assert last - first >= total.gap_ns
    for one, path in ((total, killed), (complete, whole_path)):
        start_ns, at_ns = account_of(path)
        unexplained = at_ns - start_ns - one.accounted_ns - one.gap_ns
        print(f"unexplained: {unexplained / 1e6:.3f} ms")
        assert abs(unexplained) < EXACT_NS, f"a commit was lost or counted twice, seed {SEED}"
        seconds = one.accounted_ns / NS
        assert one.busy_ns == pytest.approx(one.accounted_ns * driver.BUSY / 100, rel=1e-3)
        assert one.energy_mj == pytest.approx(seconds * driver.WATTS * 1000, rel=1e-3)


def account_of(path: Path) -> tuple[int, int]:
    """Return the start and the end of the account of the device, as stored."""
    ((text,),) = query(path, "SELECT usage FROM state")
    usage = load(driver.DEVICE.uuid, str(text))
    return usage.start.wall_ns, usage.at.wall_ns


def check_holdings(path: Path) -> None:
    """Check that a holding continues in its row after a kill."""
    with closing(open_readonly(path)) as connection:
        rows = read_holdings(connection, 0, FOREVER, 100_000)
    names = [row.container.subject.uid for row in rows]
    assert sorted(set(names)) == sorted(names), f"seed {SEED}"
    for row in rows:
        assert row.counted_ns + row.gap_ns == pytest.approx(row.until_ns - row.start_ns, abs=5e7)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
