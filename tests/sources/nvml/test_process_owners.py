"""Owners of processes from procfs: lookup, memory of ended processes, and reused pids."""

import os
from pathlib import Path

import pytest

from pipeline.host.procfs import HOST_PID_NAMESPACE, ROOT
from pipeline.model import NS, Instant, PartialRef
from sources.nvml.process_owners import UNKNOWN, PidRecord, Process, Procfs, hidden_reason
from tests.sources.nvml.fake_procfs import ID, OWNER, POD, TICKS, UID, UPTIME_S, Proc

ELSEWHERE = "pid:[4026532201]"

BOOT_S = 1000  # wall clock


def at(seconds: float = 0) -> Instant:
    return Instant(round(seconds * NS), round((BOOT_S + UPTIME_S + seconds) * NS))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def test_a_process_is_found_with_its_start_and_its_owner(proc: Proc) -> None:
    proc.run(7, 100)
    (found,) = Procfs(proc.root).lookup([7], at()).values()
    assert found.current == Process(100 * TICKS, OWNER)
    assert found.began_us == (BOOT_S + 100) * 1_000_000
    assert found.previous is None


@pytest.mark.parametrize("name", ["a b", ") S 1 2", "((", "", "x) R 1 1 1"])
def test_any_process_name_is_parsed(proc: Proc, name: str) -> None:
    proc.run(7, 100, name=name)
    assert Procfs(proc.root).lookup([7], at())[7].current == Process(100 * TICKS, OWNER)


def test_a_known_process_needs_only_one_file_to_be_read(proc: Proc) -> None:
    known = Procfs(proc.root)
    for pid in (7, 8):
        proc.run(pid)
    known.lookup([7, 8], at())
    (proc.root / "7/cgroup").unlink()
    assert known.lookup([7], at(1)) == {7: PidRecord(Process(100 * TICKS, OWNER))}


def test_a_reused_pid_has_the_current_and_the_previous_process(proc: Proc) -> None:
    known = Procfs(proc.root)
    proc.run(7, 100)
    known.lookup([7], at(0))
    known.lookup([7], at(5))
    other = PartialRef(uid=UID, container_id="cd" * 32)
    proc.run(7, 503, POD.replace(ID, "cd" * 32))
    found = known.lookup([7], at(10))[7]
    assert found.current == Process(503 * TICKS, other)
    assert found.began_us == (BOOT_S + 503) * 1_000_000 + 10 * 1_000_000
    assert (found.previous, found.seen_ns) == (Process(100 * TICKS, OWNER), 5 * NS)


def test_an_ended_process_is_remembered_with_the_time_it_was_seen(proc: Proc) -> None:
    known = Procfs(proc.root)
    proc.run(7)
    known.lookup([7], at(0))
    proc.end(7)
    for second in (5, 10):
        found = known.lookup([7], at(second))[7]
        assert found.current is None
        assert (found.previous, found.seen_ns) == (Process(100 * TICKS, OWNER), 0)


def test_a_process_that_was_never_seen_is_unknown(proc: Proc) -> None:
    assert Procfs(proc.root).lookup([7], at()) == {7: UNKNOWN}


def test_an_owner_that_could_not_be_read_is_looked_up_again(proc: Proc) -> None:
    known = Procfs(proc.root)
    proc.run(7)
    (proc.root / "7/cgroup").unlink()
    assert known.lookup([7], at())[7].current == Process(100 * TICKS, None)
    proc.run(7)
    assert known.lookup([7], at())[7] == PidRecord(Process(100 * TICKS, OWNER))


def test_a_malformed_stat_file_is_no_process(proc: Proc) -> None:
    proc.run(7)
    for text in ("", "7 (x) S 1", "7 (x) S " + "x " * 30):
        (proc.root / "7/stat").write_text(text)
        assert Procfs(proc.root).lookup([7], at())[7].current is None


def test_without_an_uptime_the_start_time_is_unknown(proc: Proc) -> None:
    proc.run(7)
    for text in ("", "nan 1\n", "inf 1\n"):
        (proc.root / "uptime").write_text(text)
        found = Procfs(proc.root).lookup([7], at())[7]
        assert found.current is not None
        assert found.began_us is None


def test_the_least_recently_seen_processes_are_forgotten(proc: Proc) -> None:
    known = Procfs(proc.root, most=3)
    for pid in range(1, 6):
        proc.run(pid)
    known.lookup([1, 2, 3], at(0))
    known.lookup([1], at(1))
    known.lookup([4], at(2))
    for pid in range(1, 6):
        proc.end(pid)
    assert {pid for pid in range(1, 6) if known.lookup([pid], at(3))[pid].previous} == {1, 3, 4}


def test_this_process_is_found_in_the_real_procfs() -> None:
    now = ROOT / "uptime"
    assert now.exists()
    found = Procfs(ROOT).lookup([os.getpid()], at())[os.getpid()]
    assert found.current is not None
    assert found.current.started > 0
    assert found.current.owner is not None


# -- whether the procfs is the host's ------------------------------------------------------------


def shown(root: Path, namespace: str, own: str, first: str, pid: int = 40) -> Path:
    """Create a procfs with this process as `self` and the first process, and return it."""
    for name, number, cgroup in (("self", pid, own), ("1", 1, first)):
        folder = root / name
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/pid").symlink_to(namespace)
        (folder / "stat").write_text(f"{number} (x) S 0\n")
        (folder / "cgroup").write_text(cgroup)
    return root


HOST = "0::/init.scope\n"
PAUSE = f"0::/kubepods/pod{UID}/{'cd' * 32}\n"
NODE = f"0::/docker/{ID}/init.scope\n"
IN_NODE = f"0::/docker/{ID}/kubelet/kubepods/pod{UID}/{'cd' * 32}\n"
PLACES = {
    "the host's namespace": (HOST_PID_NAMESPACE, POD, HOST, 40, True),
    "the host's, without container cgroups": (HOST_PID_NAMESPACE, "0::/\n", "0::/\n", 40, True),
    "its own namespace, as its first process": (ELSEWHERE, POD, POD, 1, False),
    "its own namespace, after a shell": (ELSEWHERE, POD, POD, 40, False),
    "its own namespace and cgroup namespace": (ELSEWHERE, "0::/\n", "0::/\n", 40, False),
    "its own namespace, in docker": (
        ELSEWHERE,
        f"4:memory:/docker/{ID}\n",
        f"4:memory:/docker/{ID}\n",
        9,
        False,
    ),
    "its pod's namespace": (ELSEWHERE, POD, PAUSE, 40, False),
    "its pod's namespace, and its own cgroup namespace": (
        ELSEWHERE,
        "0::/\n",
        f"0::/../cri-containerd-{'cd' * 32}.scope\n",
        40,
        False,
    ),
    "a node that is a container": (ELSEWHERE, IN_NODE, NODE, 40, True),
    "a node that is a container, and its own cgroup namespace": (
        ELSEWHERE,
        "0::/\n",
        "0::/../../../../init.scope\n",
        40,
        True,
    ),
    "a node in a pod": (
        ELSEWHERE,
        f"{POD[:-1]}/kubepods/pod{UID}/{ID}",
        f"{POD[:-1]}/init",
        40,
        True,
    ),
    "no readable cgroups": (ELSEWHERE, "", "", 40, True),
}


@pytest.mark.parametrize(
    ("namespace", "own", "first", "pid", "is_host"), PLACES.values(), ids=PLACES.keys()
)
def test_a_procfs_is_recognised_as_the_host_s(  # noqa: PLR0917 - a table's columns
    tmp_path: Path, namespace: str, own: str, first: str, pid: int, is_host: bool
) -> None:
    root = shown(tmp_path, namespace, own, first, pid)
    reason = hidden_reason(root, is_configured=False)
    assert (reason == "") is is_host, reason
    if reason:
        assert ELSEWHERE in reason


PIDS = {
    "podgpu's own namespace": ("40", True),
    "the namespace outside podgpu's own": ("4711 40", False),
    "two namespaces outside podgpu's own": ("9 4711\t40", False),
    "no pids": ("", False),
}


@pytest.mark.parametrize(("numbers", "good"), PIDS.values(), ids=PIDS.keys())
def test_a_configured_procfs_must_show_podgpu_s_own_pid_namespace(
    tmp_path: Path, numbers: str, good: bool
) -> None:
    proc = Proc(tmp_path / "proc", numbers)
    proc.run(1)
    reason = hidden_reason(proc.root, is_configured=True)
    assert reason == ("" if good else f"{proc.root} shows a pid namespace other than podgpu's own")
    # podgpu has no entry in this procfs.
    (proc.root / "self/status").unlink()
    assert "a pid namespace other" in hidden_reason(proc.root, is_configured=True)


def test_the_real_procfs_shows_podgpu_s_own_pid_namespace() -> None:
    assert hidden_reason(ROOT / "self/root/proc", is_configured=True) == ""


def test_an_unreadable_procfs_is_named_in_the_reason(tmp_path: Path) -> None:
    assert "self/ns/pid" in hidden_reason(tmp_path, is_configured=False)
    assert "1/stat" in hidden_reason(tmp_path / "nowhere", is_configured=True)


def test_t4_an_mps_server_is_recognised_by_its_name(proc: Proc) -> None:
    proc.run(7, name="nvidia-cuda-mps")
    proc.run(8)
    known = Procfs(proc.root)
    found = known.lookup([7, 8], at())
    serves = {
        pid: one.current is not None and one.current.is_mps_server for pid, one in found.items()
    }
    assert serves == {7: True, 8: False}
    # The server gets its name some time after its start.
    proc.run(8, name="nvidia-cuda-mps")
    assert known.lookup([8], at(1))[8].current == Process(100 * TICKS, OWNER, is_mps_server=True)
    proc.end(8)
    gone = known.lookup([8], at(2))[8].previous
    assert gone is not None
    assert gone.is_mps_server
