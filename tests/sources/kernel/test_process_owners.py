"""Whose the process is that the log names, and when nobody can say."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from pipeline.host import procfs
from pipeline.host.cgroups import NO_CONTAINER
from pipeline.host.procfs import HOST_PID_NAMESPACE
from pipeline.model import NS, Instant
from sources.kernel.kmsg_device import Log
from sources.kernel.lookup_thread import BlockingCalls
from sources.kernel.process_owners import hidden_reason, lookup
from tests.sources.kernel.logs import Kmsg, xid
from tests.sources.kernel.running import reports, running, until
from tests.sources.nvml.procs import OWNER, UPTIME_S, Proc
from tests.support.contexts import FakeSourceContext

NOW = Instant(1000 * NS, 1_700_000_000 * NS)
ELSEWHERE = "pid:[4026532201]"


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """The procfs of a machine, mounted elsewhere."""
    made = Proc(tmp_path / "proc")
    made.run(1, 0, "0::/init.scope\n", "systemd")
    namespace(made.root, "1", HOST_PID_NAMESPACE)
    return made


def namespace(root: Path, whose: str, name: str) -> None:
    (root / whose / "ns").mkdir(parents=True)
    (root / whose / "ns/pid").symlink_to(name)


def ago(seconds: float) -> Instant:
    """So long before the look, at which the machine has been up for so long."""
    return Instant(NOW.mono_ns - round(seconds * NS), NOW.wall_ns - round(seconds * NS))


def test_a_process_of_a_pod(proc: Proc) -> None:
    proc.run(7, UPTIME_S - 60)
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(1)) == OWNER


def test_a_process_outside_all_pods(proc: Proc) -> None:
    proc.run(7, UPTIME_S - 60, "0::/system.slice/nvidia-persistenced.service\n")
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(1)) == NO_CONTAINER


def test_a_process_that_has_ended(proc: Proc) -> None:
    assert lookup(proc.root, [7], lambda: NOW) == {}


@pytest.mark.parametrize(
    ("began", "error", "owner"),
    [(60, 59, OWNER), (60, 61, None), (5, 3600, None), (60, 60.02, OWNER), (0, 0, OWNER)],
)
def test_one_that_began_after_the_error_only_has_the_number(
    proc: Proc, began: float, error: float, owner: object
) -> None:
    proc.run(7, UPTIME_S - began)
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(error)) == owner


def test_where_it_can_t_be_reported_when_it_began_it_is_taken_for_the_one(proc: Proc) -> None:
    proc.run(7)
    for text in ("", "nan 1\n", "inf 1\n"):
        (proc.root / "uptime").write_text(text)
        assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(3600)) == OWNER


def test_a_look_that_takes_long_makes_no_process_older_than_it_is(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may be held up at any place: then one that has the number anew isn't the one."""
    moment, real = [0.0], procfs.read

    def slowly(path: Path) -> str:
        moment[0] += 5
        (proc.root / "uptime").write_text(f"{UPTIME_S + moment[0]} 1\n")
        return real(path)

    monkeypatch.setattr(procfs, "read", slowly)
    proc.run(7, UPTIME_S + 2)
    found = lookup(proc.root, [7], lambda: ago(-moment[0]))[7]
    assert found.owner_at(ago(1)) is None
    assert found.owner_at(ago(-3)) == OWNER


def test_one_that_gets_the_number_during_the_look_is_not_taken_for_the_one_before(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = procfs.read

    def meanwhile(path: Path) -> str:
        if path.name == "cgroup":
            proc.run(7, UPTIME_S - 1)
        return real(path)

    monkeypatch.setattr(procfs, "read", meanwhile)
    proc.run(7, UPTIME_S - 60, "0::/system.slice/before.service\n")
    assert lookup(proc.root, [7], lambda: NOW) == {}


def test_this_machine_s_own() -> None:
    clock = FakeSourceContext().clock
    pid = os.getpid()
    found = lookup(Path("/proc"), [pid], clock.now)[pid]
    assert found.began_ns is not None
    assert found.began_ns <= clock.now().mono_ns


HIDDEN = {
    "the host's own": ("self", HOST_PID_NAMESPACE, False, ""),
    "a container's": ("self", ELSEWHERE, False, "shows another pid namespace"),
    "the host's, elsewhere": ("1", HOST_PID_NAMESPACE, True, ""),
    "a container's, elsewhere": ("1", ELSEWHERE, True, "shows another pid namespace"),
}


@pytest.mark.parametrize(("whose", "name", "chosen", "why"), HIDDEN.values(), ids=HIDDEN)
def test_whose_procfs_it_is(tmp_path: Path, whose: str, name: str, chosen: bool, why: str) -> None:
    namespace(tmp_path, whose, name)
    found = hidden_reason(tmp_path, is_configured=chosen)
    assert why in found
    assert bool(found) is bool(why)


def test_one_that_was_chosen_is_believed_where_no_one_may_look(tmp_path: Path) -> None:
    """Whose namespace a process is in may be seen by those alone who may trace it."""
    assert hidden_reason(tmp_path, is_configured=True)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (systemd) S 0\n")
    assert not hidden_reason(tmp_path, is_configured=True)
    assert hidden_reason(tmp_path, is_configured=False)


async def test_a_report_names_the_container(kmsg: Kmsg, proc: Proc) -> None:
    proc.run(1234, UPTIME_S - 60)
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path, proc.root):
        kmsg.says(xid(31))
        kmsg.says(xid(79, rest=", GPU has fallen off the bus."))
        kmsg.says(xid(45, rest=", pid=99, name=gone, Ch 1"))
        await until(lambda: len(reports(ctx)) == 3)
    assert [(one.code, one.pid, one.owner) for one in reports(ctx)] == [
        (31, 1234, OWNER),
        (79, None, None),
        (45, 99, None),
    ]


async def test_without_the_host_s_procfs_it_is_said_once(
    kmsg: Kmsg, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path, tmp_path / "nowhere"):
        for code in (31, 79):
            kmsg.says(xid(code))
            await until(lambda code=code: code in [one.code for one in reports(ctx)])  # type: ignore[misc]
    assert [report.owner for report in reports(ctx)] == [None, None]
    assert [report.pid for report in reports(ctx)] == [1234, 1234]
    assert caplog.text.count("hostPID: true") == 1


async def test_a_procfs_that_hangs_keeps_no_report_waiting(
    kmsg: Kmsg, proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.kernel.lookup_thread._LOOKUP_TIMEOUT", 0.05)
    release = threading.Event()

    def hang(*_: object, **__: object) -> str:
        release.wait()
        return ""

    monkeypatch.setattr("sources.kernel.process_owners.hidden_reason", hang)
    proc.run(1234, UPTIME_S - 60)
    ctx = FakeSourceContext()
    try:
        async with running(ctx, kmsg.path, proc.root):
            for code in (31, 48, 79):
                kmsg.says(xid(code))
                await until(lambda code=code: code in [one.code for one in reports(ctx)])  # type: ignore[misc]
        assert [report.owner for report in reports(ctx)] == [None] * 3
        looking = [t for t in threading.enumerate() if t.name == "podgpu-kernel"]
        assert len(looking) == 1, "no second one is sent after the first"
    finally:
        release.set()


async def test_a_log_that_is_opened_too_late_is_closed_again(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, closed = threading.Event(), threading.Event()

    class Late:
        def __init__(self, path: Path) -> None:
            release.wait()

        def __exit__(self, *_: object) -> None:
            closed.set()

    monkeypatch.setattr("sources.kernel.lookup_thread.Log", Late)
    task = asyncio.create_task(BlockingCalls().open(kmsg.path))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await until(closed.is_set)


async def test_a_log_that_is_open_as_the_stop_comes_is_closed_again(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    lookups = BlockingCalls()
    monkeypatch.setattr(lookups, "_start", lambda _: opened)
    task = asyncio.create_task(lookups.open(kmsg.path))
    await asyncio.sleep(0)
    log = Log(kmsg.path)
    opened.set_result(log)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(log.fd)
