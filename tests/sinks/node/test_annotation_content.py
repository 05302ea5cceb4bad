"""The value of the annotation, on virtual time."""

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


async def test_readers_get_the_topology_free_gpus_and_time() -> None:
    bench = Bench()
    bench.node.say(topology_read(*GPUS, memory=80 << 30))
    async with bench.running():
        await asyncio.sleep(2)
        bench.set_held(1)
        await asyncio.sleep(2)
        annotation = bench.published()
        snapshot = bench.ctx.snapshot
        assert snapshot is not None
        assert isinstance(snapshot.topology, Topology)
        assert annotation.topology.links == snapshot.topology.links
        assert (annotation.free, annotation.part) == (0b1101, 0)
        assert (annotation.at, annotation.refresh) == (START.wall_ns / 1e9 + 2, 300)
        assert json.loads(bench.value() or "")["gpus"][0]["memory"] == 80 << 30


async def test_free_and_partly_held_gpus_are_separate() -> None:
    bench = Bench()
    bench.node.has(*GPUS, mig(GPUS[2], 1))
    async with bench.running():
        bench.set_held()
        bench.node.say(claims(), "kubelet", "podresources")
        await asyncio.sleep(2)
        assert (bench.published().free, bench.published().part) == (0b1111, 0)


async def test_without_a_source_of_holders_the_annotation_has_no_free_gpus() -> None:
    async with Bench().running() as bench:
        bench.send_snapshot()
        await asyncio.sleep(2)
        assert bench.published().free is None


async def test_other_annotations_stay_unchanged() -> None:
    async with Bench().running() as bench:
        bench.set_held()
        await asyncio.sleep(2)
        assert bench.api.annotations(PATH)["theirs"] == "1"
        [(_, changes)] = bench.api.patches()
        assert list(changes) == ["metadata"]
        assert list(changes["metadata"]) == ["annotations"]


async def test_node_name_and_annotation_key_are_configurable() -> None:
    bench = Bench(node="node-2", annotation="example.com/gpus")
    bench.api.put("/api/v1/nodes/node-2", {"kind": "Node", "metadata": {}})
    async with bench.running():
        bench.set_held()
        await asyncio.sleep(2)
        assert "example.com/gpus" in bench.api.annotations("/api/v1/nodes/node-2")
        assert bench.value() is None


async def test_a_node_s_name_is_escaped_in_the_path() -> None:
    bench = Bench()
    bench.ctx.node = "a/b"
    bench.sink = bench.make_sink()
    bench.api.put("/api/v1/nodes/a%2Fb", {"metadata": {}})
    async with bench.running():
        bench.set_held()
        await asyncio.sleep(2)
        assert bench.api.annotations("/api/v1/nodes/a%2Fb")


async def test_the_annotation_of_64_gpus_is_far_below_the_size_limit() -> None:
    bench = Bench()
    cards = [gpu(index) for index in range(64)]
    bench.node = Node()
    bench.node.has(*cards)
    bench.node.say(topology_read(*cards, each=32, memory=192 << 30))
    async with bench.running():
        bench.set_held(*range(0, 64, 2))
        await asyncio.sleep(2)
        value = bench.value() or ""
        assert bench.published().free == int("a" * 16, 16)
        assert len(value) < 32 << 10
