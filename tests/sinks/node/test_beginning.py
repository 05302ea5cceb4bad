"""Whom the sink waits for before it writes; on virtual time."""

import asyncio

import pytest

from pipeline.model import (
    SourceAdded,
    SourceRemoved,
)
from tests.sinks.node.support import Bench
from tests.support.nodes import (
    claims,
)

pytestmark = pytest.mark.looptime


async def test_nothing_is_written_before_the_sources_have_spoken() -> None:
    bench = Bench()
    bench.waits_for("kubelet")
    async with bench.running():
        bench.show()
        await asyncio.sleep(5)
        bench.loses("kubelet")
        bench.show()
        await asyncio.sleep(5)
        assert bench.api.requests == []
        bench.holds(0, 1)
        await asyncio.sleep(1.1)
        assert bench.said().free == 0b1100


async def test_a_source_that_a_reload_adds_is_waited_for() -> None:
    bench = Bench()
    bench.node.say(claims(), "checkpoint", "checkpoint")
    bench.ctx.snapshot = bench.node.snapshot()
    async with bench.running():
        await asyncio.sleep(0.05)
        bench.waits_for("kubelet")
        bench.show()
        await asyncio.sleep(3)
        assert bench.api.requests == []
        bench.holds(0, 1, 2, 3)
        await asyncio.sleep(1.1)
        assert bench.said().free == 0


async def test_a_source_of_another_kind_in_one_s_place_is_waited_for() -> None:
    bench = Bench()
    bench.node.say(claims(good_for=1e6), "podlist", "podlist")
    async with bench.running():
        bench.holds(0, 1)
        await asyncio.sleep(30)
        assert bench.said().free == 0b1100
        bench.node.say(SourceRemoved(), "kubelet", "podresources")
        bench.node.say(SourceAdded(9), "kubelet", "checkpoint")
        bench.show()
        await asyncio.sleep(5)
        assert bench.said().free == 0b1100
        bench.node.say(bench.said_by_kubelet(0, 1, 2), "kubelet", "checkpoint")
        bench.show()
        await asyncio.sleep(1.1)
        # The first word after the wait need not keep a distance from a wrong one before it.
        assert bench.said().free == 0b1000
        assert len(bench.patched_at()) == 2


async def test_one_that_was_added_is_not_waited_for_for_ever_either() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(30)
        bench.node.say(SourceAdded(9), "checkpoint", "checkpoint")
        bench.holds(1)
        await asyncio.sleep(14.5)
        assert bench.said().free == 0b1110
        await asyncio.sleep(2)
        assert bench.said().free == 0b1101


async def test_a_source_that_says_nothing_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    bench.waits_for("kubelet")
    async with bench.running():
        bench.show()
        await asyncio.sleep(30)
        assert bench.patched_at() == [16]


async def test_a_sink_that_comes_later_begins_with_the_newest_snapshot() -> None:
    bench = Bench()
    bench.holds(3)
    async with bench.running():
        await asyncio.sleep(1.1)
        assert bench.said().free == 0b111
