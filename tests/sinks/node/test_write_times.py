"""When the annotation is written, on virtual time."""

import asyncio
import logging
import random

import looptime
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.sinks.node.support import GPUS, Bench, now
from tests.support.examples import examples
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
        # The first change settles, and no other follows for five minutes.
        ([0], [1]),
        ([0.5], [1.5]),
        # Changes within the settling second are in the same patch and do not delay it.
        ([0, 0.3, 0.9], [1]),
        # Later changes are collected until min_interval has passed since the last patch.
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
            bench.set_held(*range(turn % 5))
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
async def test_min_interval_limits_the_writes(
    interval: str, refresh: str, patched: list[float]
) -> None:
    async with Bench(min_interval=interval, refresh=refresh).running() as bench:
        for when, held in ((0, 0), (2, 1), (5, 2), (8, 3)):
            await asyncio.sleep(when - now())
            bench.set_held(held)
        await asyncio.sleep(22 - now())
        assert bench.patched_at() == patched


async def test_each_refresh_writes_the_time_of_the_newest_snapshot() -> None:
    async with Bench(refresh="1m").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(50)
        bench.send_snapshot()
        await asyncio.sleep(12)
        assert bench.patched_at() == [1, 61]
        assert bench.published().at == START.wall_ns / 1e9 + 50
        await asyncio.sleep(120)
        assert bench.patched_at() == [1, 61, 121, 181]
        # There was no newer snapshot: the value has the time of the last one.
        assert bench.published().at == START.wall_ns / 1e9 + 50


async def test_a_snapshot_with_only_a_new_time_is_not_written() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(2)
        for _ in range(20):
            bench.node.reads(reading(GPUS[0], "gpu_utilization_percent", 5))
            bench.send_snapshot()
            await asyncio.sleep(1)
        assert bench.patched_at() == [1]


async def test_a_change_that_is_undone_before_the_write_is_not_written() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.set_held(1)
        await asyncio.sleep(0.5)
        bench.set_held(0)
        await asyncio.sleep(60)
        assert bench.patched_at() == [1]


async def test_a_memory_size_that_becomes_known_is_written() -> None:
    async with Bench().running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.node.say(topology_read(*GPUS, memory=80 << 30))
        bench.send_snapshot()
        await asyncio.sleep(2)
        assert bench.patched_at() == [1, 21]


async def test_the_node_is_read_at_the_start_and_once_in_each_refresh() -> None:
    async with Bench(refresh="1m").running() as bench:
        bench.set_held(0)
        await asyncio.sleep(20)
        bench.set_held(1)
        await asyncio.sleep(20)
        bench.set_held(2)
        await asyncio.sleep(15)
        assert bench.methods() == ["GET", "PATCH", "PATCH", "PATCH"]
        # Writes do not delay the read of the next refresh.
        await asyncio.sleep(10)
        bench.set_held(3)
        await asyncio.sleep(20)
        assert bench.methods()[4:] == ["GET", "PATCH"]
        assert bench.ctx.counted("podgpu_sink_requests_total") == {"get ok": 2, "patch ok": 4}


async def test_a_change_during_a_patch_is_written_after_it() -> None:
    bench = Bench()
    bench.api.takes = 20
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(30)
        bench.set_held(1)
        await asyncio.sleep(1)
        bench.set_held(2)
        await asyncio.sleep(60)
        assert bench.published().free == 0b1011
        assert len(bench.api.patches()) == 2


async def test_a_new_topology_is_written_and_a_missing_one_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.node = Node()
    bench.node.has(*GPUS)
    async with bench.running():
        bench.set_held(0)
        await asyncio.sleep(10)
        # The source nvml reports the topology last.
        assert not [r for r in caplog.records if "no topology is known" in r.message]
        for _ in range(3):
            bench.set_held(0)
            await asyncio.sleep(400)
        assert bench.api.requests == []
        [record] = [record for record in caplog.records if "no topology is known" in record.message]
        assert record.levelno == logging.INFO
        bench.node.say(topology_read(*GPUS))
        bench.send_snapshot()
        await asyncio.sleep(2)
        assert bench.published().topology.mask == 0b1111
        bench.node.say(topology_read(*GPUS[:2]))
        bench.send_snapshot()
        await asyncio.sleep(20)
        assert bench.published().topology.mask == 0b11


async def run_half_an_hour(seed: int, interval: int, refresh: int, takes: float) -> None:
    """Make 500 changes at random times of half an hour."""
    rng = random.Random(seed)
    bench = Bench(min_interval=f"{interval}s", refresh=f"{refresh}s")
    bench.api.takes = takes
    async with bench.running():
        for when in sorted(rng.uniform(0, 1800) for _ in range(500)):
            await asyncio.sleep(when - now())
            bench.set_held(*(index for index in range(4) if rng.random() < 0.5))
        last = bench.ctx.snapshot
        assert last is not None
        await asyncio.sleep(interval + 3 * takes + 2)
        assert last.availability is not None
        assert bench.published().free == last.availability.free
        assert min(bench.distances()) >= interval - 1e-3
        assert max(bench.distances()) <= refresh + 3 * takes + 1e-3


@pytest.mark.slow
@pytest.mark.timeout(120)
@settings(max_examples=examples(3), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([1, 10, 60]),
    st.sampled_from([60, 300]),
    st.sampled_from([0.0, 0.7]),
)
def test_random_changes_never_make_two_patches_within_min_interval(
    seed: int, interval: int, refresh: int, takes: float
) -> None:
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(run_half_an_hour(seed, interval, refresh, takes))


@pytest.mark.slow
async def test_frequent_changes_are_written_as_often_as_min_interval_allows() -> None:
    async with Bench().running() as bench:
        for turn in range(300):
            bench.set_held(turn % 4)
            await asyncio.sleep(3.6)
        assert 90 <= len(bench.api.patches()) <= 108
