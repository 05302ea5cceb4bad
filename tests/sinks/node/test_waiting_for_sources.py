"""Which sources the sink waits for before it writes, on virtual time."""

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


async def test_nothing_is_written_before_all_sources_have_reported() -> None:
    bench = Bench()
    bench.add_source("kubelet")
    async with bench.running():
        bench.send_snapshot()
        await asyncio.sleep(5)
        bench.lose_source("kubelet")
        bench.send_snapshot()
        await asyncio.sleep(5)
        assert bench.api.requests == []
        bench.set_held(0, 1)
        await asyncio.sleep(1.1)
        assert bench.published().free == 0b1100


async def test_the_sink_waits_for_a_source_that_a_reload_adds() -> None:
    bench = Bench()
    bench.node.say(claims(), "checkpoint", "checkpoint")
    bench.ctx.snapshot = bench.node.snapshot()
    async with bench.running():
        await asyncio.sleep(0.05)
        bench.add_source("kubelet")
        bench.send_snapshot()
        await asyncio.sleep(3)
        assert bench.api.requests == []
        bench.set_held(0, 1, 2, 3)
        await asyncio.sleep(1.1)
        assert bench.published().free == 0


async def test_the_sink_waits_for_a_source_whose_kind_was_changed() -> None:
    bench = Bench()
    bench.node.say(claims(good_for=1e6), "podlist", "podlist")
    async with bench.running():
        bench.set_held(0, 1)
        await asyncio.sleep(30)
        assert bench.published().free == 0b1100
        bench.node.say(SourceRemoved(), "kubelet", "podresources")
        bench.node.say(SourceAdded(9), "kubelet", "checkpoint")
        bench.send_snapshot()
        await asyncio.sleep(5)
        assert bench.published().free == 0b1100
        bench.node.say(bench.kubelet_claims(0, 1, 2), "kubelet", "checkpoint")
        bench.send_snapshot()
        await asyncio.sleep(1.1)
        # The first write after the wait does not wait for min_interval.
        assert bench.published().free == 0b1000
        assert len(bench.patched_at()) == 2


async def test_the_wait_for_an_added_source_is_limited() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(30)
        bench.node.say(SourceAdded(9), "checkpoint", "checkpoint")
        bench.set_held(1)
        await asyncio.sleep(14.5)
        assert bench.published().free == 0b1110
        await asyncio.sleep(2)
        assert bench.published().free == 0b1101


async def test_the_wait_for_a_silent_source_is_limited() -> None:
    bench = Bench()
    bench.add_source("kubelet")
    async with bench.running():
        bench.send_snapshot()
        await asyncio.sleep(30)
        assert bench.patched_at() == [16]


async def test_a_sink_that_is_added_later_starts_with_the_newest_snapshot() -> None:
    bench = Bench()
    bench.set_held(3)
    async with bench.running():
        await asyncio.sleep(1.1)
        assert bench.published().free == 0b111
