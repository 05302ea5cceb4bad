"""The owner of a process that the kernel log names, and when it is unknown."""

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
from sources.kernel.process_owners import BlockingCalls, hidden_reason, lookup
from tests.sources.kernel.logs import Kmsg, xid
from tests.sources.kernel.running import reports, running, until
from tests.sources.nvml.fake_procfs import OWNER, UPTIME_S, Proc
from tests.support.contexts import FakeSourceContext

NOW = Instant(1000 * NS, 1_700_000_000 * NS)
ELSEWHERE = "pid:[4026532201]"


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """Return the procfs of a machine, mounted at another path."""
    made = Proc(tmp_path / "proc")
    made.run(1, 0, "0::/init.scope\n", "systemd")
    namespace(made.root, "1", HOST_PID_NAMESPACE)
    return made


def namespace(root: Path, process: str, name: str) -> None:
    (root / process / "ns").mkdir(parents=True)
    (root / process / "ns/pid").symlink_to(name)


def ago(seconds: float) -> Instant:
    """Return the time this many seconds before NOW, at which the uptime is UPTIME_S."""
    return Instant(NOW.mono_ns - round(seconds * NS), NOW.wall_ns - round(seconds * NS))


def test_a_process_in_a_pod_has_its_container_as_owner(proc: Proc) -> None:
    proc.run(7, UPTIME_S - 60)
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(1)) == OWNER


def test_a_process_outside_pods_has_no_container(proc: Proc) -> None:
    proc.run(7, UPTIME_S - 60, "0::/system.slice/nvidia-persistenced.service\n")
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(1)) == NO_CONTAINER


def test_an_ended_process_is_not_found(proc: Proc) -> None:
    assert lookup(proc.root, [7], lambda: NOW) == {}


@pytest.mark.parametrize(
    ("began", "error", "owner"),
    [(60, 59, OWNER), (60, 61, None), (5, 3600, None), (60, 60.02, OWNER), (0, 0, OWNER)],
)
def test_a_process_that_started_after_the_error_is_not_the_owner(
    proc: Proc, began: float, error: float, owner: object
) -> None:
    proc.run(7, UPTIME_S - began)
    assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(error)) == owner


def test_a_process_with_an_unknown_start_time_is_taken_as_the_owner(proc: Proc) -> None:
    proc.run(7)
    for text in ("", "nan 1\n", "inf 1\n"):
        (proc.root / "uptime").write_text(text)
        assert lookup(proc.root, [7], lambda: NOW)[7].owner_at(ago(3600)) == OWNER


def test_a_slow_lookup_does_not_make_a_process_older(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may be delayed anywhere. A process that reused the pid is not the owner."""
    delay, real = [0.0], procfs.read

    def slowly(path: Path) -> str:
        delay[0] += 5
        (proc.root / "uptime").write_text(f"{UPTIME_S + delay[0]} 1\n")
        return real(path)

    monkeypatch.setattr(procfs, "read", slowly)
    proc.run(7, UPTIME_S + 2)
    found = lookup(proc.root, [7], lambda: ago(-delay[0]))[7]
    assert found.owner_at(ago(1)) is None
    assert found.owner_at(ago(-3)) == OWNER


def test_a_pid_that_is_reused_during_the_lookup_has_no_owner(
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


def test_this_process_is_found_in_the_real_procfs() -> None:
    clock = FakeSourceContext().clock
    pid = os.getpid()
    found = lookup(Path("/proc"), [pid], clock.now)[pid]
    assert found.began_ns is not None
    assert found.began_ns <= clock.now().mono_ns


HIDDEN = {
    "the host's": ("self", HOST_PID_NAMESPACE, False, ""),
    "a container's": ("self", ELSEWHERE, False, "shows another pid namespace"),
    "the host's, configured": ("1", HOST_PID_NAMESPACE, True, ""),
    "a container's, configured": ("1", ELSEWHERE, True, "shows another pid namespace"),
}


@pytest.mark.parametrize(("process", "name", "chosen", "why"), HIDDEN.values(), ids=HIDDEN)
def test_the_pid_namespace_of_a_procfs_is_recognised(
    tmp_path: Path, process: str, name: str, chosen: bool, why: str
) -> None:
    namespace(tmp_path, process, name)
    found = hidden_reason(tmp_path, is_configured=chosen)
    assert why in found
    assert bool(found) is bool(why)


def test_a_configured_procfs_is_trusted_if_its_namespace_is_unreadable(tmp_path: Path) -> None:
    """Only a process that may trace another one can read its namespace."""
    assert hidden_reason(tmp_path, is_configured=True)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (systemd) S 0\n")
    assert not hidden_reason(tmp_path, is_configured=True)
    assert hidden_reason(tmp_path, is_configured=False)


async def test_an_xid_report_has_the_container_of_its_process(kmsg: Kmsg, proc: Proc) -> None:
    proc.run(1234, UPTIME_S - 60)
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path, proc.root):
        kmsg.write(xid(31))
        kmsg.write(xid(79, rest=", GPU has fallen off the bus."))
        kmsg.write(xid(45, rest=", pid=99, name=gone, Ch 1"))
        await until(lambda: len(reports(ctx)) == 3)
    assert [(one.code, one.pid, one.owner) for one in reports(ctx)] == [
        (31, 1234, OWNER),
        (79, None, None),
        (45, 99, None),
    ]


async def test_a_missing_host_procfs_is_logged_once(
    kmsg: Kmsg, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = FakeSourceContext()
    async with running(ctx, kmsg.path, tmp_path / "nowhere"):
        for code in (31, 79):
            kmsg.write(xid(code))
            await until(lambda code=code: code in [one.code for one in reports(ctx)])  # type: ignore[misc]
    assert [report.owner for report in reports(ctx)] == [None, None]
    assert [report.pid for report in reports(ctx)] == [1234, 1234]
    assert caplog.text.count("hostPID: true") == 1


async def test_a_hanging_procfs_does_not_delay_reports(
    kmsg: Kmsg, proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.kernel.process_owners._LOOKUP_TIMEOUT", 0.05)
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
                kmsg.write(xid(code))
                await until(lambda code=code: code in [one.code for one in reports(ctx)])  # type: ignore[misc]
        assert [report.owner for report in reports(ctx)] == [None] * 3
        threads = [t for t in threading.enumerate() if t.name == "podgpu-kernel"]
        assert len(threads) == 1, "no second thread starts while the first one hangs"
    finally:
        release.set()


async def test_a_log_that_opens_after_the_stop_is_closed(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, closed = threading.Event(), threading.Event()

    class Late:
        def __init__(self, path: Path) -> None:
            release.wait()

        def __exit__(self, *_: object) -> None:
            closed.set()

    monkeypatch.setattr("sources.kernel.process_owners.Log", Late)
    task = asyncio.create_task(BlockingCalls().open(kmsg.path))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await until(closed.is_set)


async def test_a_log_that_opens_during_the_stop_is_closed(
    kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: asyncio.Future[Log] = asyncio.get_running_loop().create_future()
    lookups = BlockingCalls()
    monkeypatch.setattr(lookups.thread, "start", lambda _: opened)
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
