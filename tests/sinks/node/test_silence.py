"""What is written while nobody tells of the topology, or of holders; on virtual time."""

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


async def test_a_topology_that_no_one_reports_any_more_is_written_once_without_what_is_free() -> (
    None
):
    """So that readers see that it isn't so any more, and then that it gets old."""
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.node.say(SourceLost("the driver is gone"))
        for turn in range(200):
            bench.holds(turn % 4)
            await asyncio.sleep(10)
        said = bench.said()
        assert bench.patched_at() == [1, 21]
        assert (said.free, said.topology.mask) == (None, 0b1111)
        assert said.at == START.wall_ns / 1e9 + 20
        assert said.stale(START.wall_ns / 1e9 + now())
        # It comes back with its source.
        bench.node.say(topology_read(*GPUS))
        bench.holds(1)
        await asyncio.sleep(2)
        assert bench.said().free == 0b1101
        bench.show()
        await asyncio.sleep(301)
        assert len(bench.patched_at()) == 4


async def test_a_topology_that_is_withdrawn_is_too() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.node.say(SourceRemoved())
        for _ in range(100):
            bench.show()
            await asyncio.sleep(10)
        assert bench.patched_at() == [1, 21]
        assert (bench.said().free, bench.said().topology.mask) == (None, 0b1111)
        assert bench.said().at == START.wall_ns / 1e9 + 20


async def test_where_it_isn_t_known_what_is_free_either_the_source_that_comes_back_is_heard() -> (
    None
):
    async with Bench().running() as bench:
        bench.show()
        await asyncio.sleep(20)
        bench.node.say(SourceLost("the driver is gone"))
        bench.show()
        await asyncio.sleep(20)
        bench.node.say(topology_read(*GPUS))
        bench.show()
        await asyncio.sleep(302)
        assert bench.patched_at() == [1, 21, 41, 341]
        assert bench.said().free is None


async def test_a_word_of_the_kubelet_that_ran_out_leaves_nothing_free_whatever_the_pods_say() -> (
    None
):
    bench = Bench()
    said = (Pod(PodInfo("uid", "ml", "a", "Running"), START),)
    bench.node.say(PodsReplaced(said, 10**6 * NS), "pods", "pods")
    async with bench.running():
        bench.node.say(
            claims(kubelet_claim("a", uuid_of(0)), good_for=60), "kubelet", "podresources"
        )
        bench.show()
        await asyncio.sleep(5)
        assert bench.said().free == 0b1110
        bench.loses("kubelet")
        bench.show()
        await asyncio.sleep(30)
        assert bench.said().free == 0b1110
        await asyncio.sleep(30)
        bench.node.seconds = now()
        bench.node.say(ClockTicked(), "", "clock")
        bench.show()
        await asyncio.sleep(20)
        assert bench.said().free is None


@pytest.mark.parametrize("pods", [True, False])
async def test_without_a_source_that_lists_the_holders_it_is_reported_once(
    pods: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    if pods:
        bench.node.say(PodsReplaced((), 10**6 * NS), "pods", "pods")
    async with bench.running():
        for _ in range(100):
            bench.show()
            await asyncio.sleep(1)
        assert bench.said().free is None
        bench.holds(0)
        await asyncio.sleep(12)
        assert bench.said().free == 0b1110
    [given_out] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert given_out == (
        "no source reports the holders of GPUs, so the annotation does not show which are free; "
        "add one of the sources checkpoint, nri, podlist, podresources"
    )
