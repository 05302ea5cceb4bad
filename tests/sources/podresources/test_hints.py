"""How often the kubelet is asked."""

import asyncio
import itertools
import statistics
import time
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.model import ClaimsReplaced
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.running import asking, eventually

GPU = "nvidia.com/gpu"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


async def test_each_interval(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path, interval=Duration(0.2)) as ctx:
        await ctx.wait_for(ClaimsReplaced, 5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(kubelet.lists)]
    assert min(gaps) > 0.19
    assert kubelet.calls["v1/GetAllocatableResources"] >= 4


async def test_a_hint_asks_at_once(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path) as ctx:
        await ctx.until()
        await asyncio.sleep(0.15)
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        begun = time.monotonic()
        ctx.hint()
        await ctx.until("a")
        assert time.monotonic() - begun < 1
        await asyncio.sleep(0.2)
        assert kubelet.calls["v1/List"] == 2


async def test_its_own_words_are_no_hint_to_it(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path) as ctx:
        await ctx.until()
        ctx.hint(source=ctx.name)
        await asyncio.sleep(0.2)
        assert kubelet.calls["v1/List"] == 1


async def test_a_storm_of_hints_asks_ten_times_a_second_at_most(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path) as ctx:
        await ctx.until()
        begun = time.monotonic()
        while time.monotonic() - begun < 1:
            ctx.hint()
            await asyncio.sleep(0.001)
        storm = kubelet.calls["v1/List"]
        assert 5 <= storm <= 12
        await asyncio.sleep(0.3)
        assert kubelet.calls["v1/List"] <= storm + 1
        # Evenly: of one that comes late on a busy machine the next one may seem early.
        gaps = [later - earlier for earlier, later in itertools.pairwise(kubelet.lists)]
        assert statistics.median(gaps) > 0.08


async def test_hints_while_it_asks_make_one_more(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, asking(path) as ctx:
        await ctx.until()
        kubelet.delay = 0.3
        ctx.hint()
        await eventually(lambda: kubelet.calls["v1/List"] == 2)
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        for _ in range(5):
            ctx.hint()
            await asyncio.sleep(0.02)
        await ctx.wait_for(ClaimsReplaced, 3)
        await asyncio.sleep(0.5)
        assert kubelet.calls["v1/List"] == 3
        assert ctx.pods() == ["a"]
