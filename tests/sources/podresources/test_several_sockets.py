"""Several sockets: that of the kubelet and that of a proxy."""

import asyncio
import logging
from pathlib import Path

import pytest

from config.value_types import Duration
from pipeline.model import ClaimsReplaced, RawDeviceId, SourceLost
from tests.fakes.kubelet import FakeKubelet, pod
from tests.sources.podresources.source_runner import running_source

GPU = "nvidia.com/gpu"


@pytest.fixture
def first(tmp_path: Path) -> FakeKubelet:
    kubelet = FakeKubelet(tmp_path / "kubelet.sock")
    kubelet.pods = [pod("a", {GPU: ["GPU-0"]})]
    return kubelet


@pytest.fixture
def second(tmp_path: Path) -> FakeKubelet:
    proxy = FakeKubelet(tmp_path / "proxy.sock")
    proxy.pods = [pod("a", {GPU: ["GPU-0"]}), pod("b", {GPU: ["GPU-1"]})]
    return proxy


async def test_a_claim_of_both_sockets_is_reported_once(
    first: FakeKubelet, second: FakeKubelet
) -> None:
    async with first, second, running_source(first.path, second.path) as ctx:
        # Whichever responds first: each claim has the first socket that lists it as its origin.
        origins = [f"{first.path} v1 List", f"{second.path} v1 List"]
        await ctx.when(lambda: [one.origin.detail for one in ctx.claims() or ()] == origins)
        # The kubelet did not report this claim: the proxy read it from an annotation.
        assert [one.relayed for one in ctx.claims() or ()] == [False, True]


async def test_a_later_socket_may_add_devices_to_a_container(
    first: FakeKubelet, second: FakeKubelet
) -> None:
    second.pods = [pod("a", {GPU: ["GPU-0", "GPU-5"]})]
    async with first, second, running_source(first.path, second.path) as ctx:
        await ctx.until("a", "a")
        assert [claim.devices for claim in ctx.claims() or ()] == [
            (RawDeviceId("plugin", "GPU-0"),),
            (RawDeviceId("plugin", "GPU-5"),),
        ]


async def test_advertised_resources_of_both_sockets_are_combined(
    first: FakeKubelet, second: FakeKubelet
) -> None:
    first.offered = {GPU: ["GPU-0", "GPU-1"]}
    second.offered = {GPU: ["GPU-1", "GPU-2"], "nvidia.com/mig-1g.10gb": ["MIG-0"]}
    both = {GPU: ["GPU-0", "GPU-1", "GPU-2"], "nvidia.com/mig-1g.10gb": ["MIG-0"]}
    async with first, second, running_source(first.path, second.path) as ctx:
        await ctx.when(lambda: ctx.advertised() == both)


async def test_a_socket_that_is_configured_twice_is_used_once(first: FakeKubelet) -> None:
    async with first, running_source(first.path, first.path) as ctx:
        await ctx.until("a")
        assert first.calls["v1/List"] == 1


@pytest.mark.slow
async def test_a_socket_that_fails_does_not_affect_the_other(
    first: FakeKubelet, second: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    interval, max_age = Duration(0.1), Duration(1.5)
    async with (
        first,
        second,
        running_source(first.path, second.path, interval=interval, max_age=max_age) as ctx,
    ):
        await ctx.until("a", "b")
        await second.stop()
        await asyncio.sleep(0.8)
        # The failure is logged, but the source stays up; the last claims of that socket stay.
        assert any(str(second.path) in text for text in caplog.messages)
        assert ctx.reasons() == []
        assert ctx.pods() == ["a", "b"]
        await ctx.until("a", timeout=2)
        await second.start()
        await ctx.until("a", "b")
        assert ctx.reasons() == []


@pytest.mark.slow
async def test_the_source_is_lost_only_if_all_sockets_fail(
    first: FakeKubelet, second: FakeKubelet
) -> None:
    async with (
        first,
        second,
        running_source(first.path, second.path, interval=Duration(0.1)) as ctx,
    ):
        await ctx.until("a", "b")
        await first.stop()
        await second.stop()
        reason = await ctx.lost()
        assert str(first.path) in reason
        assert str(second.path) in reason
        await first.start()
        count = len(await ctx.wait_for(ClaimsReplaced))
        await ctx.wait_for(ClaimsReplaced, count + 1)
        assert ctx.pods() == ["a", "b"]


@pytest.mark.slow
async def test_the_claims_of_each_socket_expire_separately(
    first: FakeKubelet, second: FakeKubelet
) -> None:
    max_age = Duration(1.2)
    async with (
        first,
        second,
        running_source(first.path, second.path, interval=Duration(0.1), max_age=max_age) as ctx,
    ):
        await ctx.until("a", "b")
        await second.stop()
        await asyncio.sleep(0.6)
        await first.stop()
        await ctx.lost()
        assert ctx.pods() == ["a", "b"]
        # The second's claims expire, and the first's stay until they expire too. The source is
        # still lost.
        await ctx.until("a", timeout=2)
        await ctx.when(lambda: isinstance(ctx.events[-1], SourceLost))
        reports = [event for event in ctx.events if isinstance(event, ClaimsReplaced)]
        assert reports[-1].good_for_ns < 0.9e9
        count = len(ctx.events)
        await asyncio.sleep(1)
        assert len(ctx.events) == count
