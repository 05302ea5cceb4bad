"""Programs of killed test runs are ended, and those of running ones are kept."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import marks
from tests.e2e.kube import leftovers
from tests.e2e.processes import Process, wait_until

_ROOT = Path(__file__).parents[2]
_RUN = """
import sys, time
from pathlib import Path
from tests.e2e import marks
from tests.e2e.processes import Process

env = {marks.NODE: "yes"} if "node" in sys.argv else {}
for script in ("exec sleep 600", "sleep 600 & wait"):
    Process(["/bin/sh", "-c", script], Path.cwd() / "log", env)
time.sleep(600)
"""
"""A test run that starts two programs, one of which starts a third."""

_PROGRAMS = 3


@dataclass
class Run:
    """Another test run.

    Args:
        folder: folder to create.
        checkout: the checkout of the run.
        node: whether its programs belong to a node.
        ends: stack with the cleanup.
    """

    folder: Path
    checkout: Path
    node: bool
    ends: ExitStack

    def __post_init__(self) -> None:
        self.folder.mkdir()
        words = ("node",) if self.node else ()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.checkout)},
        )
        self.ends.callback(self.end)
        wait_until(lambda: len(self.programs()) == _PROGRAMS, "its programs run")

    def programs(self) -> set[int]:
        mark = f"{self._process.pid}."
        return {pid for pid, env in marks.marked() if env[marks.RUN].startswith(mark)}

    def kill(self) -> None:
        """Kill it without waiting for its status, so that it becomes a zombie."""
        self._process.kill()
        wait_until(lambda: _state(self._process.pid) == "Z", "it has ended")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        leftovers.end(self.programs())


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A part of another checkout that is sufficient for a run."""
    for name in ("__init__.py", "e2e/__init__.py", "e2e/marks.py", "e2e/processes.py"):
        target = tmp_path / "clone" / "tests" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / "tests" / name, target)
    return tmp_path / "clone"


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("node", [False, True], ids=["programs of a test", "programs of a node"])
@pytest.mark.parametrize("other", [False, True], ids=["same checkout", "another"])
def test_programs_of_a_running_test_run_are_kept(
    tmp_path: Path, clone: Path, ends: ExitStack, *, node: bool, other: bool
) -> None:
    living, killed = (
        Run(tmp_path / name, clone if other else _ROOT, node, ends) for name in ("living", "killed")
    )
    left = killed.programs()
    assert not {*leftovers.ended_with_their_run()} & (living.programs() | left)
    killed.kill()
    ended = {*leftovers.ended_with_their_run()}
    assert left <= ended
    assert not ended & living.programs()
    leftovers.end(left)
    assert killed.programs() == set()
    assert len(living.programs()) == _PROGRAMS


@pytest.mark.parametrize(
    ("env", "ends_with_the_node"), [({}, False), ({marks.NODE: "yes"}, True)], ids=["test", "node"]
)
def test_only_node_programs_of_the_own_run_are_ended(
    tmp_path: Path, ends: ExitStack, env: Mapping[str, str], *, ends_with_the_node: bool
) -> None:
    """A Prometheus or a podgpu can outlive the cluster."""
    own = Process(["/bin/sleep", "600"], tmp_path / "log", env)
    ends.callback(own.stop)
    assert (own.pid in leftovers.ended_with_their_run()) == ends_with_the_node


def test_programs_without_a_run_mark_are_kept(ends: ExitStack) -> None:
    """A program that a user starts has no mark."""
    own = {key: value for key, value in os.environ.items() if key != marks.RUN}
    by_hand = subprocess.Popen(["/bin/sleep", "600"], env=own)
    ends.callback(by_hand.wait)
    ends.callback(by_hand.kill)
    assert by_hand.pid not in leftovers.ended_with_their_run()


def test_the_end_of_a_run_is_recognized() -> None:
    pid, since, namespace = marks.own().split(".")
    assert not marks.over(f"{pid}.{since}.{namespace}")
    assert marks.over(f"{pid}.{int(since) - 1}.{namespace}"), "another process has the pid"
    assert marks.over(f"{2**22 + 1}.{since}.{namespace}"), "no process has the pid"
    assert not marks.over(f"{2**22 + 1}.{since}.1"), "another PID namespace"
    for strange in ("", "yes", "1.2", f"{pid}.{since}.x"):
        assert not marks.over(strange)
