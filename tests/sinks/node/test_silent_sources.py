"""What the sink writes while no source reports the topology or the holders, on virtual time."""

import asyncio
import logging

import pytest

from pipeline.model import (
    NS,
    ClockTicked,
    Pod,
    PodInfo,
    PodsReplaced,
    SourceLost,
    SourceRemoved,
)
from tests.sinks.node.support import GPUS, Bench, now
from tests.support.nodes import (
    START,
    claims,
    kubelet_claim,
    uuid_of,
)
from tests.support.topology import topology_read

pytestmark = pytest.mark.looptime


@pytest.mark.slow
async def test_a_topology_of_a_lost_source_is_written_once_without_free_gpus() -> None:
    """Readers see that free GPUs are unknown, and later that the value is stale."""
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.node.say(SourceLost("the driver is gone"))
        for turn in range(200):
            bench.set_held(turn % 4)
            await asyncio.sleep(10)
        annotation = bench.published()
        assert bench.patched_at() == [1, 21]
        assert (annotation.free, annotation.topology.mask) == (None, 0b1111)
        assert annotation.at == START.wall_ns / 1e9 + 20
        assert annotation.stale(START.wall_ns / 1e9 + now())
        # Free GPUs are written again when the source is back.
        bench.node.say(topology_read(*GPUS))
        bench.set_held(1)
        await asyncio.sleep(2)
        assert bench.published().free == 0b1101
        bench.send_snapshot()
        await asyncio.sleep(301)
        assert len(bench.patched_at()) == 4


async def test_a_topology_of_a_removed_source_is_written_once_without_free_gpus() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.node.say(SourceRemoved())
        for _ in range(100):
            bench.send_snapshot()
            await asyncio.sleep(10)
        assert bench.patched_at() == [1, 21]
        assert (bench.published().free, bench.published().topology.mask) == (None, 0b1111)
        assert bench.published().at == START.wall_ns / 1e9 + 20


async def test_a_topology_source_that_returns_is_written_also_without_known_holders() -> None:
    async with Bench().running() as bench:
        bench.send_snapshot()
        await asyncio.sleep(20)
        bench.node.say(SourceLost("the driver is gone"))
        bench.send_snapshot()
        await asyncio.sleep(20)
        bench.node.say(topology_read(*GPUS))
        bench.send_snapshot()
        await asyncio.sleep(302)
        assert bench.patched_at() == [1, 21, 41, 341]
        assert bench.published().free is None


async def test_free_gpus_are_unknown_after_the_kubelet_s_claims_expired() -> None:
    bench = Bench()
    pods_of_node = (Pod(PodInfo("uid", "ml", "a", "Running"), START),)
    bench.node.say(PodsReplaced(pods_of_node, 10**6 * NS), "pods", "pods")
    async with bench.running():
        bench.node.say(
            claims(kubelet_claim("a", uuid_of(0)), good_for=60), "kubelet", "podresources"
        )
        bench.send_snapshot()
        await asyncio.sleep(5)
        assert bench.published().free == 0b1110
        bench.lose_source("kubelet")
        bench.send_snapshot()
        await asyncio.sleep(30)
        assert bench.published().free == 0b1110
        await asyncio.sleep(30)
        bench.node.seconds = now()
        bench.node.say(ClockTicked(), "", "clock")
        bench.send_snapshot()
        await asyncio.sleep(20)
        assert bench.published().free is None


@pytest.mark.parametrize("pods", [True, False])
async def test_a_missing_source_of_holders_is_logged_once(
    pods: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    if pods:
        bench.node.say(PodsReplaced((), 10**6 * NS), "pods", "pods")
    async with bench.running():
        for _ in range(100):
            bench.send_snapshot()
            await asyncio.sleep(1)
        assert bench.published().free is None
        bench.set_held(0)
        await asyncio.sleep(12)
        assert bench.published().free == 0b1110
    [message] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert message == (
        "no source reports the holders of GPUs, so the annotation does not show which are free; "
        "add one of the sources checkpoint, nri, podlist, podresources"
    )
