"""When the source reports its list as complete.

While the list is complete, claims of other sources that lack the pod's name have no effect. A list
that is reported as complete too early hides real holders until the kubelet lists them.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.base.clock import SystemClock
from pipeline.model import ClaimsReplaced, Instant
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.source_runner import KubeletContext, eventually, running_source

GPU = "nvidia.com/gpu"
SHORT_INTERVAL = Duration(0.1)


class ShiftedClock(SystemClock):
    """A wall clock that is ahead, so that files and sockets seem older."""

    def __init__(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)

    def now(self) -> Instant:
        found = super().now()
        return replace(found, wall_ns=found.wall_ns + self._ns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.fixture(autouse=True)
def short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.podresources.socket_client._WARM_UP_NS", 500_000_000)


def kubelet_with_pods(path: Path, *names: str) -> FakeKubelet:
    kubelet = FakeKubelet(path)
    kubelet.pods = [pod(name, {GPU: [f"GPU-{name}"]}) for name in names]
    return kubelet


def reports(ctx: KubeletContext) -> list[ClaimsReplaced]:
    return [event for event in ctx.events if isinstance(event, ClaimsReplaced)]


async def until_complete(ctx: KubeletContext) -> None:
    await ctx.when(lambda: bool(reports(ctx)) and reports(ctx)[-1].complete)


async def restart(kubelet: FakeKubelet, *names: str) -> None:
    await kubelet.stop()
    kubelet.pods = [one for one in kubelet.pods if one.name in names]
    await kubelet.start()


async def test_the_first_list_of_a_kubelet_that_has_run_long_is_complete(path: Path) -> None:
    async with kubelet_with_pods(path, "a"), running_source(path, clock=ShiftedClock(301)) as ctx:
        await ctx.until("a")
        assert reports(ctx)[0].complete


@pytest.mark.slow
async def test_the_first_list_of_a_kubelet_that_may_be_new_is_incomplete(path: Path) -> None:
    max_age = Duration(1.5)
    async with (
        kubelet_with_pods(path, "a"),
        running_source(path, interval=SHORT_INTERVAL, max_age=max_age) as ctx,
    ):
        started = asyncio.get_running_loop().time()
        await until_complete(ctx)
        assert asyncio.get_running_loop().time() - started > 1
        assert not any(event.complete for event in reports(ctx)[:-1])


@pytest.mark.slow
async def test_a_socket_created_later_counts_as_new_whatever_the_age_of_its_file(
    path: Path,
) -> None:
    async with running_source(path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)) as ctx:
        await ctx.lost()
        async with kubelet_with_pods(path, "a"):
            await ctx.until("a")
            await asyncio.sleep(0.5)
            assert not any(event.complete for event in reports(ctx))


@pytest.mark.slow
async def test_after_a_restart_the_list_is_complete_once_all_earlier_pods_are_listed(
    path: Path,
) -> None:
    """The API server is unavailable: the kubelet lists static pods first, and others later."""
    async with (
        kubelet_with_pods(path, "a", "b") as kubelet,
        running_source(path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)) as ctx,
    ):
        await ctx.until("a", "b")
        assert reports(ctx)[-1].complete
        before, pods = len(ctx.events), list(kubelet.pods)
        await restart(kubelet, "a")
        await ctx.until("a")  # a repeated list is reported after a while, as incomplete
        kubelet.pods = [pod("c", {GPU: ["GPU-c"]}), pods[0]]
        await ctx.until("a", "c")
        since = [event for event in ctx.events[before:] if isinstance(event, ClaimsReplaced)]
        assert since
        assert not any(event.complete for event in since)
        kubelet.pods = pods
        await ctx.until("a", "b")
        assert reports(ctx)[-1].complete


@pytest.mark.slow
async def test_after_a_restart_without_missing_pods_the_first_list_is_complete(path: Path) -> None:
    async with (
        kubelet_with_pods(path, "a") as kubelet,
        running_source(path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)) as ctx,
    ):
        await ctx.until("a")
        count = len(reports(ctx))
        await restart(kubelet, "a")
        await ctx.wait_for(ClaimsReplaced, count + 3)
        assert all(event.complete for event in reports(ctx))


@pytest.mark.slow
async def test_after_a_restart_the_list_is_complete_once_missing_pods_have_expired(
    path: Path,
) -> None:
    max_age = Duration(2)
    async with (
        kubelet_with_pods(path, "a", "b") as kubelet,
        running_source(
            path, interval=SHORT_INTERVAL, max_age=max_age, clock=ShiftedClock(3600)
        ) as ctx,
    ):
        await ctx.until("a", "b")
        await restart(kubelet, "a")
        started = asyncio.get_running_loop().time()
        await ctx.until("a")
        assert not reports(ctx)[-1].complete
        await until_complete(ctx)
        assert asyncio.get_running_loop().time() - started > 1.5


class TestSeveralSockets:
    @pytest.mark.slow
    async def test_the_list_is_incomplete_until_each_socket_has_responded(
        self, tmp_path: Path
    ) -> None:
        first = kubelet_with_pods(tmp_path / "first.sock", "a")
        second = kubelet_with_pods(tmp_path / "second.sock", "b")
        second.hangs = True
        async with (
            first,
            second,
            running_source(
                first.path, second.path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)
            ) as ctx,
        ):
            await ctx.wait_for(ClaimsReplaced, 3)
            assert not any(event.complete for event in reports(ctx))

    async def test_the_list_is_incomplete_while_a_socket_fails(self, tmp_path: Path) -> None:
        first = kubelet_with_pods(tmp_path / "first.sock", "a")
        second = kubelet_with_pods(tmp_path / "second.sock", "b")
        async with (
            first,
            second,
            running_source(
                first.path, second.path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)
            ) as ctx,
        ):
            await until_complete(ctx)
            await second.stop()
            await ctx.when(lambda: not reports(ctx)[-1].complete)

    @pytest.mark.slow
    async def test_the_list_is_incomplete_after_a_socket_was_replaced(self, tmp_path: Path) -> None:
        first = kubelet_with_pods(tmp_path / "first.sock", "a")
        second = kubelet_with_pods(tmp_path / "second.sock", "b")
        async with (
            first,
            second,
            running_source(
                first.path, second.path, interval=SHORT_INTERVAL, clock=ShiftedClock(3600)
            ) as ctx,
        ):
            await until_complete(ctx)
            await restart(second)
            # It responds again without an error, but b is not listed.
            await ctx.until("a")
            count = len(reports(ctx))
            await ctx.wait_for(ClaimsReplaced, count + 3)
            assert not any(event.complete for event in reports(ctx)[count:])
            second.pods = [pod("b", {GPU: ["GPU-b"]})]
            await until_complete(ctx)


@pytest.mark.slow
async def test_a_response_is_discarded_if_the_socket_was_replaced_meanwhile(path: Path) -> None:
    """The library reconnects by itself, possibly to a kubelet that has just started."""
    async with (
        kubelet_with_pods(path, "a") as kubelet,
        running_source(path, clock=ShiftedClock(3600)) as ctx,
    ):
        await ctx.until("a")
        await ctx.when(lambda: ctx.advertised() == {})
        kubelet.delay = 0.3
        ctx.hint()
        await eventually(lambda: kubelet.calls["v1/List"] == 2)
        pods, kubelet.pods = kubelet.pods, []
        path.chmod(0o700)  # counts as a new socket: the time of change differs
        await asyncio.sleep(0.4)
        kubelet.pods = pods
        await ctx.wait_for(ClaimsReplaced, 2)
        assert kubelet.calls["v1/List"] == 3
        assert all(len(event.claims) == 1 for event in reports(ctx))
        assert ctx.reasons() == []
