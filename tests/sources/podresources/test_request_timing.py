"""When the source sends requests to the kubelet, in real time."""

import asyncio
import itertools
import statistics
import time
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.model import ClaimsReplaced
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.source_runner import eventually, running_source

GPU = "nvidia.com/gpu"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.mark.slow
async def test_the_kubelet_is_requested_at_each_interval(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path, interval=Duration(0.2)) as ctx:
        await ctx.wait_for(ClaimsReplaced, 5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(kubelet.lists)]
    assert min(gaps) > 0.19
    assert kubelet.calls["v1/GetAllocatableResources"] >= 4


@pytest.mark.slow
async def test_a_hint_causes_an_immediate_request(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path) as ctx:
        await ctx.until()
        await asyncio.sleep(0.15)
        kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
        started = time.monotonic()
        ctx.hint()
        await ctx.until("a")
        assert time.monotonic() - started < 1
        await asyncio.sleep(0.2)
        assert kubelet.calls["v1/List"] == 2


async def test_hints_caused_by_the_source_itself_are_ignored(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path) as ctx:
        await ctx.until()
        ctx.hint(source=ctx.name)
        await asyncio.sleep(0.2)
        assert kubelet.calls["v1/List"] == 1


@pytest.mark.slow
async def test_many_hints_cause_at_most_ten_requests_per_second(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path) as ctx:
        await ctx.until()
        started = time.monotonic()
        while time.monotonic() - started < 1:
            ctx.hint()
            await asyncio.sleep(0.001)
        request_count = kubelet.calls["v1/List"]
        assert 5 <= request_count <= 12
        await asyncio.sleep(0.3)
        assert kubelet.calls["v1/List"] <= request_count + 1
        # The median: on a busy machine a late request makes the next gap short.
        gaps = [later - earlier for earlier, later in itertools.pairwise(kubelet.lists)]
        assert statistics.median(gaps) > 0.08


@pytest.mark.slow
async def test_hints_during_a_request_cause_one_more_request(path: Path) -> None:
    async with FakeKubelet(path) as kubelet, running_source(path) as ctx:
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
