"""When the source says that it names every pod that holds something.

A claim of another source that lacks the pod's name counts for nothing meanwhile: said too early,
real owners are lost for as long as the kubelet doesn't know them.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.base.clock import SystemClock
from pipeline.model import ClaimsReplaced, Instant
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.running import Asking, asking, eventually

GPU = "nvidia.com/gpu"
OFTEN = Duration(0.1)


class Later(SystemClock):
    """The wall clock of so many seconds from now: what is there is as old."""

    def __init__(self, seconds: float) -> None:
        self._ns = round(seconds * 1e9)

    def now(self) -> Instant:
        found = super().now()
        return replace(found, wall_ns=found.wall_ns + self._ns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.fixture(autouse=True)
def warming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.podresources.socket_client._WARM_UP_NS", 500_000_000)


def holding(path: Path, *names: str) -> FakeKubelet:
    kubelet = FakeKubelet(path)
    kubelet.pods = [pod(name, {GPU: [f"GPU-{name}"]}) for name in names]
    return kubelet


def said(ctx: Asking) -> list[ClaimsReplaced]:
    return [event for event in ctx.events if isinstance(event, ClaimsReplaced)]


async def until_complete(ctx: Asking) -> None:
    await ctx.when(lambda: bool(said(ctx)) and said(ctx)[-1].complete)


async def restart(kubelet: FakeKubelet, *names: str) -> None:
    await kubelet.stop()
    kubelet.pods = [one for one in kubelet.pods if one.name in names]
    await kubelet.start()


async def test_a_kubelet_that_has_run_for_long_is_believed_at_once(path: Path) -> None:
    async with holding(path, "a"), asking(path, clock=Later(301)) as ctx:
        await ctx.until("a")
        assert said(ctx)[0].complete


async def test_a_kubelet_that_may_just_have_started_is_not(path: Path) -> None:
    max_age = Duration(1.5)
    async with holding(path, "a"), asking(path, interval=OFTEN, max_age=max_age) as ctx:
        began = asyncio.get_running_loop().time()
        await until_complete(ctx)
        assert asyncio.get_running_loop().time() - began > 1
        assert not any(event.complete for event in said(ctx)[:-1])


async def test_a_socket_that_comes_while_we_run_is_young_whatever_its_file_says(path: Path) -> None:
    async with asking(path, interval=OFTEN, clock=Later(3600)) as ctx:
        await ctx.lost()
        async with holding(path, "a"):
            await ctx.until("a")
            await asyncio.sleep(0.5)
            assert not any(event.complete for event in said(ctx))


async def test_after_a_restart_when_all_of_before_are_listed_again(path: Path) -> None:
    """Its API server is away: it knows of static pods alone, and then of one after another."""
    async with (
        holding(path, "a", "b") as kubelet,
        asking(path, interval=OFTEN, clock=Later(3600)) as ctx,
    ):
        await ctx.until("a", "b")
        assert said(ctx)[-1].complete
        before, pods = len(ctx.events), list(kubelet.pods)
        await restart(kubelet, "a")
        await ctx.until("a")  # what it goes on to say is believed after a while, but not complete
        kubelet.pods = [pod("c", {GPU: ["GPU-c"]}), pods[0]]
        await ctx.until("a", "c")
        since = [event for event in ctx.events[before:] if isinstance(event, ClaimsReplaced)]
        assert since
        assert not any(event.complete for event in since)
        kubelet.pods = pods
        await ctx.until("a", "b")
        assert said(ctx)[-1].complete


async def test_a_restart_that_loses_no_one_is_over_with_the_first_list(path: Path) -> None:
    async with (
        holding(path, "a") as kubelet,
        asking(path, interval=OFTEN, clock=Later(3600)) as ctx,
    ):
        await ctx.until("a")
        count = len(said(ctx))
        await restart(kubelet, "a")
        await ctx.wait_for(ClaimsReplaced, count + 3)
        assert all(event.complete for event in said(ctx))


async def test_after_a_restart_at_last_when_the_missing_must_be_gone(path: Path) -> None:
    max_age = Duration(2)
    async with (
        holding(path, "a", "b") as kubelet,
        asking(path, interval=OFTEN, max_age=max_age, clock=Later(3600)) as ctx,
    ):
        await ctx.until("a", "b")
        await restart(kubelet, "a")
        began = asyncio.get_running_loop().time()
        await ctx.until("a")
        assert not said(ctx)[-1].complete
        await until_complete(ctx)
        assert asyncio.get_running_loop().time() - began > 1.5


class TestSeveralSockets:
    async def test_one_that_has_not_answered_yet(self, tmp_path: Path) -> None:
        first = holding(tmp_path / "first.sock", "a")
        second = holding(tmp_path / "second.sock", "b")
        second.hangs = True
        async with (
            first,
            second,
            asking(first.path, second.path, interval=OFTEN, clock=Later(3600)) as ctx,
        ):
            await ctx.wait_for(ClaimsReplaced, 3)
            assert not any(event.complete for event in said(ctx))

    async def test_one_that_is_at_fault(self, tmp_path: Path) -> None:
        first = holding(tmp_path / "first.sock", "a")
        second = holding(tmp_path / "second.sock", "b")
        async with (
            first,
            second,
            asking(first.path, second.path, interval=OFTEN, clock=Later(3600)) as ctx,
        ):
            await until_complete(ctx)
            await second.stop()
            await ctx.when(lambda: not said(ctx)[-1].complete)

    async def test_one_that_was_replaced(self, tmp_path: Path) -> None:
        first = holding(tmp_path / "first.sock", "a")
        second = holding(tmp_path / "second.sock", "b")
        async with (
            first,
            second,
            asking(first.path, second.path, interval=OFTEN, clock=Later(3600)) as ctx,
        ):
            await until_complete(ctx)
            await restart(second)
            # It answers again and is at no fault, but b is not there.
            await ctx.until("a")
            count = len(said(ctx))
            await ctx.wait_for(ClaimsReplaced, count + 3)
            assert not any(event.complete for event in said(ctx)[count:])
            second.pods = [pod("b", {GPU: ["GPU-b"]})]
            await until_complete(ctx)


async def test_an_answer_is_none_if_the_socket_was_replaced_meanwhile(path: Path) -> None:
    """The library connects anew by itself, maybe to a kubelet that has just started."""
    async with holding(path, "a") as kubelet, asking(path, clock=Later(3600)) as ctx:
        await ctx.until("a")
        await ctx.when(lambda: ctx.advertised() == {})
        kubelet.delay = 0.3
        ctx.hint()
        await eventually(lambda: kubelet.calls["v1/List"] == 2)
        pods, kubelet.pods = kubelet.pods, []
        path.chmod(0o700)  # as good as another one: what tells them apart is the time of change
        await asyncio.sleep(0.4)
        kubelet.pods = pods
        await ctx.wait_for(ClaimsReplaced, 2)
        assert kubelet.calls["v1/List"] == 3
        assert all(len(event.claims) == 1 for event in said(ctx))
        assert ctx.reasons() == []
