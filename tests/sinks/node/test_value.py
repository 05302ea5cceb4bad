"""What is written into the annotation; on virtual time."""

import asyncio
import json

import pytest

from pipeline.model.topology_tree import Topology
from tests.sinks.node.support import GPUS, PATH, Bench
from tests.support.nodes import (
    START,
    Node,
    claims,
    gpu,
    mig,
)
from tests.support.topology import topology_read

pytestmark = pytest.mark.looptime


async def test_it_is_what_a_reader_of_it_reads() -> None:
    bench = Bench()
    bench.node.say(topology_read(*GPUS, memory=80 << 30))
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


async def test_what_is_held_in_part_is_reported() -> None:
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
    bench.node.say(topology_read(*cards, each=32, memory=192 << 30))
    async with bench.running():
        bench.holds(*range(0, 64, 2))
        await asyncio.sleep(2)
        value = bench.value() or ""
        assert bench.said().free == int("a" * 16, 16)
        assert len(value) < 32 << 10
