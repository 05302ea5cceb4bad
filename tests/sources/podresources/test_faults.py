"""Kubelets that stop, restart, hang or refuse, and sockets that are removed and created."""

import asyncio
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import asyncinotify
import pytest

from config.value_types import Duration
from pipeline.model import ClaimsReplaced
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.source_runner import (
    ONE_HOUR,
    KubeletContext,
    eventually,
    running_source,
)

GPU = "nvidia.com/gpu"
ABSENT = (
    "no such socket; mount the kubelet's pod-resources folder from the host, and set `sockets` "
    "if the kubelet has another root"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "pod-resources"
    folder.mkdir()
    return folder / "kubelet.sock"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    """Return a socket that accepts connections and never responds."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        made.listen()
        yield made


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def fewest_resources(ctx: KubeletContext, attempts: int) -> tuple[int, int, int]:
    """Return the fewest tasks, threads and descriptors in use during a number of requests.

    Those of a request are released after it; leaked ones stay in use.
    """
    found = (1 << 30,) * 3
    last = sum(ctx.requests().values()) + attempts
    while sum(ctx.requests().values()) < last:
        now = (len(asyncio.all_tasks()), threading.active_count(), descriptors())
        found = (min(found[0], now[0]), min(found[1], now[1]), min(found[2], now[2]))
        await asyncio.sleep(0.01)
    return found


def kubelet_with_pods(path: Path, name: str = "a") -> FakeKubelet:
    kubelet = FakeKubelet(path)
    kubelet.pods = [pod(name, {GPU: ["GPU-0"]})]
    return kubelet


@pytest.mark.slow
async def test_a_socket_that_is_created_later_is_used_immediately(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_source(path) as ctx:
        assert await ctx.lost() == f"{path}: {ABSENT}"
        started = time.monotonic()
        async with kubelet_with_pods(path):
            await ctx.until("a")
            assert time.monotonic() - started < 1
            await ctx.when(lambda: ctx.advertised() == {})
            assert len(ctx.reasons()) == 1
    assert caplog.messages == [
        f"{path}: {ABSENT}; this socket has given no response yet",
        f"{path}: responds again",
    ]


@pytest.mark.slow
async def test_folders_that_are_created_later_are_found(tmp_path: Path) -> None:
    path = tmp_path / "lib" / "kubelet" / "kubelet.sock"
    async with running_source(path) as ctx:
        await ctx.lost()
        path.parent.mkdir(parents=True)
        async with kubelet_with_pods(path):
            await ctx.until("a", timeout=1)


async def test_a_restarted_kubelet_is_requested_immediately(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        for name in ("b", "c"):
            await kubelet.stop()
            await asyncio.sleep(0.05)
            kubelet.pods.append(pod(name, {GPU: ["GPU-0"]}))
            started = time.monotonic()
            await kubelet.start()
            await ctx.until(*"abc"[: len(kubelet.pods)])
            assert time.monotonic() - started < 1


@pytest.mark.slow
async def test_an_empty_list_after_a_restart_does_not_withdraw_claims(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        pods, kubelet.pods = kubelet.pods, []
        await kubelet.stop()
        await ctx.lost()
        await kubelet.start()
        lists = kubelet.calls["v1/List"]
        await eventually(lambda: kubelet.calls["v1/List"] >= lists + 2)
        kubelet.pods = [*pods, pod("b", {GPU: ["GPU-1"]})]
        await ctx.until("a", "b")
        reports = await ctx.wait_for(ClaimsReplaced)
        assert all("a" in [claim.subject.pod for claim in one.claims] for one in reports)


@pytest.mark.slow
async def test_a_pod_deleted_while_the_kubelet_was_down_is_withdrawn_after_the_warm_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.podresources.socket_client._WARM_UP_NS", 1_000_000_000)
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        kubelet.pods = []
        await kubelet.stop()
        await ctx.lost()
        started = time.monotonic()
        await kubelet.start()
        await ctx.until()
        assert 0.5 < time.monotonic() - started < 3
        assert len(ctx.reasons()) == 1


async def test_a_pod_deleted_while_the_kubelet_runs_is_withdrawn_immediately(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        kubelet.pods = []
        ctx.hint()
        await ctx.until(timeout=0.5)


@pytest.mark.slow
async def test_the_last_claims_stay_while_the_kubelet_is_down(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        event_count = len(ctx.events)
        await kubelet.stop()
        assert await ctx.lost() == f"{path}: {ABSENT}"
        await asyncio.sleep(0.3)
        assert ctx.pods() == ["a"]
        assert len(ctx.events) == event_count + 1


@pytest.mark.slow
async def test_the_stale_socket_of_a_killed_kubelet_is_reported(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with running_source(path) as ctx:
        reason = await ctx.lost()
        assert (
            reason == f"{path}: the kubelet is unreachable: connection refused; check that it runs"
        )
        path.unlink()
        async with kubelet_with_pods(path):
            await ctx.until("a", timeout=1)


@pytest.mark.slow
async def test_a_socket_bound_before_the_kubelet_listens_is_retried(path: Path) -> None:
    async with running_source(path) as ctx:
        await ctx.lost()
        with socket.socket(socket.AF_UNIX) as early:
            early.bind(str(path))
            await asyncio.sleep(0.1)
            path.unlink()
        async with kubelet_with_pods(path):
            await ctx.until("a", timeout=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Path.mkdir, "is not a socket"),
        (Path.touch, "is not a socket"),
        (os.mkfifo, "is not a socket"),
    ],
)
async def test_a_path_that_is_no_socket_is_reported(path: Path, make: object, text: str) -> None:
    assert callable(make)
    make(path)
    async with running_source(path) as ctx:
        assert await ctx.lost() == f"{path}: {text}"


@pytest.mark.slow
async def test_a_path_that_is_too_long_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    path = folder / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(folder, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/kubelet.sock")
        os.close(here)
    async with running_source(path) as ctx:
        assert "is longer than 107 bytes" in await ctx.lost()


async def test_a_path_with_special_characters_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a b%2f#?é.sock"
    async with kubelet_with_pods(path), running_source(path) as ctx:
        await ctx.until("a")


@pytest.mark.slow
async def test_a_kubelet_that_never_responds_leaks_no_resources(
    path: Path, listening: socket.socket
) -> None:
    async with running_source(path, interval=Duration(0.05), timeout=Duration(0.1)) as ctx:
        assert (await ctx.lost()).startswith(f"{path}: the kubelet ")
        _, *counts = [await fewest_resources(ctx, attempts=8) for _ in range(3)]
        assert all(later <= earlier + 2 for earlier, later in zip(*counts, strict=True)), counts


@pytest.mark.slow
async def test_a_kubelet_that_hangs_is_reported_once_and_used_again_later(path: Path) -> None:
    async with (
        kubelet_with_pods(path) as kubelet,
        running_source(path, interval=Duration(0.1), timeout=Duration(0.2)) as ctx,
    ):
        await ctx.until("a")
        kubelet.hangs = True
        assert await ctx.lost() == f"{path}: the kubelet did not respond to List within 200ms"
        _, *counts = [await fewest_resources(ctx, attempts=5) for _ in range(3)]
        assert all(later <= earlier + 2 for earlier, later in zip(*counts, strict=True)), counts
        assert len(ctx.reasons()) == 1
        kubelet.hangs = False
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)


async def test_the_source_stops_without_waiting_for_a_response(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet:
        kubelet.hangs = True
        async with running_source(path):
            await eventually(lambda: kubelet.calls["v1/List"] == 1)
            started = time.monotonic()
        assert time.monotonic() - started < 0.5


@pytest.mark.slow
async def test_a_single_rejection_is_retried_and_not_reported(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.when(lambda: ctx.advertised() == {})
        kubelet.rejections = 1
        ctx.hint()
        started = time.monotonic()
        await ctx.wait_for(ClaimsReplaced, 2)
        assert time.monotonic() - started >= 1
        assert ctx.reasons() == []
        assert ctx.requests()["v1/List", "rejected"] == 1


@pytest.mark.slow
async def test_requests_to_a_kubelet_that_keeps_rejecting_become_rarer(path: Path) -> None:
    async with (
        kubelet_with_pods(path) as kubelet,
        running_source(path, interval=Duration(0.1)) as ctx,
    ):
        await ctx.until("a")
        kubelet.rejections = 100
        before = len(kubelet.lists)
        reason = await ctx.lost()
        assert reason == (
            f"{path}: the kubelet responded to List with RESOURCE_EXHAUSTED: rejected by rate limit"
        )
        for _ in range(20):
            ctx.hint()
            await asyncio.sleep(0.05)
        assert len(kubelet.lists) - before <= 3
        times = kubelet.lists[before:]
        assert times[1] - times[0] >= 1


@pytest.mark.slow
async def test_a_missing_socket_costs_almost_no_cpu_time(path: Path) -> None:
    async with running_source(path) as ctx:
        await ctx.lost()
        await asyncio.sleep(0.5)
        started = time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - started < 0.1


@pytest.mark.slow
async def test_a_socket_that_changes_constantly_causes_few_requests(path: Path) -> None:
    async with kubelet_with_pods(path) as kubelet, running_source(path) as ctx:
        await ctx.until("a")
        before = len(kubelet.lists)
        started = time.monotonic()
        while time.monotonic() - started < 1:
            path.chmod(0o700)
            path.chmod(0o755)
            await asyncio.sleep(0.001)
        assert len(kubelet.lists) - before <= 11


@pytest.mark.slow
async def test_the_grpc_library_prints_nothing(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with running_source(path, interval=ONE_HOUR) as ctx:
        await ctx.lost()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
async def test_without_inotify_a_new_socket_is_found_by_polling(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(asyncinotify.Inotify, "add_watch", refuse)
    async with running_source(path) as ctx:
        await ctx.lost()
        async with kubelet_with_pods(path):
            await ctx.until("a", timeout=3)
    assert caplog.messages[0].startswith(f"{path}: cannot watch for changes: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "text"),
    [(errno.EACCES, f"permission denied to uid {os.geteuid()}"), (errno.EIO, "input/output error")],
)
async def test_an_error_of_the_path_lookup_is_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    real_stat = Path.stat

    def refuse(self: Path, **options: bool) -> os.stat_result:
        if self == path:
            raise OSError(code, os.strerror(code))
        return real_stat(self, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    async with running_source(path) as ctx:
        assert await ctx.lost() == f"{path}: {text}"
