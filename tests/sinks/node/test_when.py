"""When the annotation is written; on virtual time."""

import asyncio
import logging
import random

import looptime
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.sinks.node.support import GPUS, Bench, now
from tests.support.nodes import (
    START,
    Node,
    reading,
)
from tests.support.topology import topology_read

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("changes", "patched"),
    [
        # The first word settles; nothing more for five minutes.
        ([0], [1]),
        ([0.5], [1.5]),
        # What comes within the second of settling is in the same patch, and doesn't put it off.
        ([0, 0.3, 0.9], [1]),
        # Later changes keep their distance from the patch before, and gather meanwhile.
        ([0, 1.5], [1, 11]),
        ([0, 1.5, 3, 5, 10.9], [1, 11]),
        ([0, 10.5], [1, 11.5]),
        ([0, 20], [1, 21]),
        ([0, 20, 20.5, 25], [1, 21, 31]),
        # The refresh counts from the last patch.
        ([0, 290], [1, 291]),
        ([0, 299.5], [1, 300.5]),
    ],
)
async def test_changes_are_written_when_they_have_settled(
    changes: list[float], patched: list[float]
) -> None:
    async with Bench().running() as bench:
        for turn, when in enumerate(changes):
            await asyncio.sleep(when - now())
            bench.holds(*range(turn % 5))
        await asyncio.sleep(300.9 - now())
        assert bench.patched_at() == patched


@pytest.mark.parametrize(
    ("interval", "refresh", "patched"),
    [
        ("1s", "5m", [1, 3, 6, 9]),
        ("5s", "5m", [1, 6, 11]),
        ("10s", "10s", [1, 11, 21]),
        ("1m", "1m", [1]),
    ],
)
async def test_the_options_say_how_often(interval: str, refresh: str, patched: list[float]) -> None:
    async with Bench(min_interval=interval, refresh=refresh).running() as bench:
        for when, held in ((0, 0), (2, 1), (5, 2), (8, 3)):
            await asyncio.sleep(when - now())
            bench.holds(held)
        await asyncio.sleep(22 - now())
        assert bench.patched_at() == patched


async def test_it_is_written_again_after_each_refresh_with_the_time_of_the_newest_snapshot() -> (
    None
):
    async with Bench(refresh="1m").running() as bench:
        bench.holds(0)
        await asyncio.sleep(50)
        bench.show()
        await asyncio.sleep(12)
        assert bench.patched_at() == [1, 61]
        assert bench.said().at == START.wall_ns / 1e9 + 50
        await asyncio.sleep(120)
        assert bench.patched_at() == [1, 61, 121, 181]
        # Nobody has made a snapshot since: it is as old as that.
        assert bench.said().at == START.wall_ns / 1e9 + 50


async def test_what_changes_nothing_of_the_value_but_its_time_is_no_change() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(2)
        for _ in range(20):
            bench.node.reads(reading(GPUS[0], "gpu_utilization_percent", 5))
            bench.show()
            await asyncio.sleep(1)
        assert bench.patched_at() == [1]


async def test_what_changes_back_before_it_is_written_is_no_change() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.holds(1)
        await asyncio.sleep(0.5)
        bench.holds(0)
        await asyncio.sleep(60)
        assert bench.patched_at() == [1]


async def test_memory_that_becomes_known_is_a_change() -> None:
    async with Bench().running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.node.say(topology_read(*GPUS, memory=80 << 30))
        bench.show()
        await asyncio.sleep(2)
        assert bench.patched_at() == [1, 21]


async def test_it_is_read_at_the_start_and_once_in_each_refresh() -> None:
    async with Bench(refresh="1m").running() as bench:
        bench.holds(0)
        await asyncio.sleep(20)
        bench.holds(1)
        await asyncio.sleep(20)
        bench.holds(2)
        await asyncio.sleep(15)
        assert bench.methods() == ["GET", "PATCH", "PATCH", "PATCH"]
        # However often it is written meanwhile.
        await asyncio.sleep(10)
        bench.holds(3)
        await asyncio.sleep(20)
        assert bench.methods()[4:] == ["GET", "PATCH"]
        assert bench.ctx.counted("podgpu_sink_requests_total") == {"get ok": 2, "patch ok": 4}


async def test_what_changes_while_a_patch_is_under_way_is_written_after_it() -> None:
    bench = Bench()
    bench.api.takes = 20
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(30)
        bench.holds(1)
        await asyncio.sleep(1)
        bench.holds(2)
        await asyncio.sleep(60)
        assert bench.said().free == 0b1011
        assert len(bench.api.patches()) == 2


async def test_a_new_topology_is_a_change_and_none_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.node = Node()
    bench.node.has(*GPUS)
    async with bench.running():
        bench.holds(0)
        await asyncio.sleep(10)
        # The source nvml tells of it after all else.
        assert not [r for r in caplog.records if "no topology is known" in r.message]
        for _ in range(3):
            bench.holds(0)
            await asyncio.sleep(400)
        assert bench.api.requests == []
        [given_out] = [
            record for record in caplog.records if "no topology is known" in record.message
        ]
        assert given_out.levelno == logging.INFO
        bench.node.say(topology_read(*GPUS))
        bench.show()
        await asyncio.sleep(2)
        assert bench.said().topology.mask == 0b1111
        bench.node.say(topology_read(*GPUS[:2]))
        bench.show()
        await asyncio.sleep(20)
        assert bench.said().topology.mask == 0b11


async def an_hour(seed: int, interval: int, refresh: int, takes: float) -> None:
    """A thousand changes at any times of an hour."""
    chance = random.Random(seed)
    bench = Bench(min_interval=f"{interval}s", refresh=f"{refresh}s")
    bench.api.takes = takes
    async with bench.running():
        for when in sorted(chance.uniform(0, 3600) for _ in range(1000)):
            await asyncio.sleep(when - now())
            bench.holds(*(index for index in range(4) if chance.random() < 0.5))
        last = bench.ctx.snapshot
        assert last is not None
        await asyncio.sleep(interval + 3 * takes + 2)
        assert last.availability is not None
        assert bench.said().free == last.availability.free
        assert min(bench.distances()) >= interval - 1e-3
        assert max(bench.distances()) <= refresh + 3 * takes + 1e-3


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([1, 10, 60]),
    st.sampled_from([60, 300]),
    st.sampled_from([0.0, 0.7]),
)
def test_many_changes_never_make_two_patches_within_the_interval(
    seed: int, interval: int, refresh: int, takes: float
) -> None:
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(an_hour(seed, interval, refresh, takes))


async def test_of_a_thousand_changes_in_an_hour_as_many_are_written_as_the_interval_allows() -> (
    None
):
    async with Bench().running() as bench:
        for turn in range(1000):
            bench.holds(turn % 4)
            await asyncio.sleep(3.6)
        assert 300 <= len(bench.api.patches()) <= 360
