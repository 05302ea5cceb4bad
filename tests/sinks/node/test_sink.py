"""What is written into the annotation, and when; on virtual time."""

import asyncio
import json
import logging
import random

import looptime
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.model import (
    NS,
    ClockTicked,
    Pod,
    PodInfo,
    PodsReplaced,
    SourceAdded,
    SourceLost,
    SourceRemoved,
)
from pipeline.topology import Topology
from tests.sinks.node.support import GPUS, PATH, Bench, now
from tests.support.joints import joints
from tests.support.nodes import (
    START,
    Node,
    claims,
    gpu,
    kubelet_claim,
    mig,
    reading,
    uuid_of,
)

pytestmark = pytest.mark.looptime


# -- what


async def test_it_is_what_a_reader_of_it_reads() -> None:
    bench = Bench()
    bench.node.say(joints(*GPUS, memory=80 << 30))
    async with bench.running():
        await asyncio.sleep(2)
        bench.holds(1)
        await asyncio.sleep(2)
        said = bench.said()
        snapshot = bench.ctx.snapshot
        assert snapshot is not None
        assert isinstance(snapshot.topology, Topology)
        assert said.topology.links == snapshot.topology.links
        assert (said.free, said.part) == (0b1101, 0)
        assert (said.at, said.refresh) == (START.wall_ns / 1e9 + 2, 300)
        assert json.loads(bench.value() or "")["gpus"][0]["memory"] == 80 << 30


async def test_what_is_held_in_part_is_told() -> None:
    bench = Bench()
    bench.node.has(*GPUS, mig(GPUS[2], 1))
    async with bench.running():
        bench.holds()
        bench.node.say(claims(), "kubelet", "podresources")
        await asyncio.sleep(2)
        assert (bench.said().free, bench.said().part) == (0b1111, 0)


async def test_without_a_word_on_holders_nothing_is_said_of_what_is_free() -> None:
    async with Bench().running() as bench:
        bench.show()
        await asyncio.sleep(2)
        assert bench.said().free is None


async def test_other_annotations_stay_as_they_are() -> None:
    async with Bench().running() as bench:
        bench.holds()
        await asyncio.sleep(2)
        assert bench.api.annotations(PATH)["theirs"] == "1"
        [(_, changes)] = bench.api.patches()
        assert list(changes) == ["metadata"]
        assert list(changes["metadata"]) == ["annotations"]


async def test_another_node_and_another_key() -> None:
    bench = Bench(node="node-2", annotation="example.com/gpus")
    bench.api.put("/api/v1/nodes/node-2", {"kind": "Node", "metadata": {}})
    async with bench.running():
        bench.holds()
        await asyncio.sleep(2)
        assert "example.com/gpus" in bench.api.annotations("/api/v1/nodes/node-2")
        assert bench.value() is None


async def test_a_node_s_name_is_one_part_of_the_path() -> None:
    bench = Bench()
    bench.ctx.node = "a/b"
    bench.sink = bench.made()
    bench.api.put("/api/v1/nodes/a%2Fb", {"metadata": {}})
    async with bench.running():
        bench.holds()
        await asyncio.sleep(2)
        assert bench.api.annotations("/api/v1/nodes/a%2Fb")


async def test_64_gpus_are_far_below_what_a_node_may_be_annotated_with() -> None:
    bench = Bench()
    cards = [gpu(index) for index in range(64)]
    bench.node = Node()
    bench.node.has(*cards)
    bench.node.say(joints(*cards, each=32, memory=192 << 30))
    async with bench.running():
        bench.holds(*range(0, 64, 2))
        await asyncio.sleep(2)
        value = bench.value() or ""
        assert bench.said().free == int("a" * 16, 16)
        assert len(value) < 32 << 10


# -- when


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
        bench.node.say(joints(*GPUS, memory=80 << 30))
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
        assert bench.api.methods() == ["GET", "PATCH", "PATCH", "PATCH"]
        # However often it is written meanwhile.
        await asyncio.sleep(10)
        bench.holds(3)
        await asyncio.sleep(20)
        assert bench.api.methods()[4:] == ["GET", "PATCH"]
        assert bench.counted("podgpu_sink_requests_total") == {"get ok": 2, "patch ok": 4}


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


async def test_a_new_topology_is_a_change_and_none_is_told_once(
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
        [told] = [record for record in caplog.records if "no topology is known" in record.message]
        assert told.levelno == logging.INFO
        bench.node.say(joints(*GPUS))
        bench.show()
        await asyncio.sleep(2)
        assert bench.said().topology.mask == 0b1111
        bench.node.say(joints(*GPUS[:2]))
        bench.show()
        await asyncio.sleep(20)
        assert bench.said().topology.mask == 0b11


# -- while nobody tells


async def test_a_topology_that_nobody_tells_any_more_is_written_once_without_what_is_free() -> None:
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
        bench.node.say(joints(*GPUS))
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
        bench.node.say(joints(*GPUS))
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
async def test_without_a_source_that_lists_the_holders_it_is_told_once(
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
    [told] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert told == (
        "no source tells who holds what, so nothing is written of what is free; "
        "add one of checkpoint, nri, podlist, podresources"
    )


# -- at the start


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


# -- in the long run


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
