"""The scheduler extender with a thousand nodes, compared with simple implementations."""

import json
import logging
from functools import partial
from random import Random
from typing import Any

import orjson
import pytest

from pipeline.topology.node_annotation import KEY
from pipeline.topology.selection import best
from podgpu.extender.node_cache import Nodes, node_record
from podgpu.extender.node_selection.node_filter import PASSED, filter_node
from podgpu.extender.node_selection.node_fit import scored
from podgpu.extender.node_selection.node_state import AtHand
from podgpu.extender.node_selection.pod_demand import Demand
from podgpu.extender.scheduler_messages import filtered, parse_question
from podgpu.extender.service import FitCache
from tests.bench.test_topology import spent
from tests.pipeline.topology.layouts import dgx1, hgx, islands, pcie
from tests.podgpu.extender.cluster import GPU, NOW, annotation_with, node, pod, question

COUNT = 1000
NAMES = [f"node-{number:04}" for number in range(COUNT)]


def annotations() -> list[str]:
    """Return annotations of four kinds of nodes, with different UUIDs and random free GPUs."""
    random, layouts = Random(1), [layout() for layout in (hgx, pcie, dgx1, islands)]
    return [
        annotation_with(layouts[n % 4], random.randrange(1, 256)).replace("5eed", f"{n:04x}")
        for n in range(COUNT)
    ]


async def cluster() -> Nodes:
    nodes, mapper = Nodes(logging.getLogger("podgpu.bench")), partial(node_record, KEY, [GPU])
    raws = [node(name, text) for name, text in zip(NAMES, annotations(), strict=True)]
    await nodes.replaced([found for raw in raws if (found := mapper(raw)) is not None])
    return nodes


@pytest.mark.parametrize("count", [2, 4])
async def test_scores_against_one_fit_for_each_node(count: int) -> None:
    """Compare with a fit that is calculated for each node."""
    nodes = await cluster()
    at_hand = [
        found for name in NAMES if isinstance(found := nodes.known_of(name).at_hand(NOW), AtHand)
    ]
    assert len(at_hand) == COUNT

    def ours(fits: FitCache) -> list[int]:
        return scored(
            [fits.fit(found.published.topology, found.free, count, None) for found in at_hand]
        )

    def plain() -> list[Any]:
        return [best(found.published.topology, found.free, count) for found in at_hand]

    kept = FitCache()
    again = spent(plain, 1)
    cold = spent(lambda: ours(FitCache()), 3)
    warm = spent(lambda: ours(kept), 5)
    print(f"\n{COUNT} nodes, {count} GPUs    ms   each node, ms   ratio")
    for name, took in (("cold", cold), ("warm", warm)):
        print(f"{name:23} {took:6.1f} {again:12.1f} {took / again:9.3f}")
    assert warm / again < 0.2
    assert cold / again < 1.2


async def test_the_filter_against_one_fit_for_each_node() -> None:
    """Compare with a fit for each node: a filter without a requirement only counts."""
    nodes = await cluster()
    demand = Demand(4)
    took = spent(lambda: [filter_node(demand, nodes.known_of(name), NOW) for name in NAMES])
    topologies = [nodes.known_of(name).at_hand(NOW) for name in NAMES]
    again = spent(
        lambda: [
            best(found.published.topology, found.free, 4)
            for found in topologies
            if isinstance(found, AtHand)
        ],
        1,
    )
    print(f"\n{COUNT} nodes filtered: {took:.1f} ms, with fits: {again:.1f} ms")
    assert took / again < 0.2


def test_requests_with_whole_nodes_against_decoding_and_encoding() -> None:
    """Compare a request with whole nodes with decoding and encoding all of it."""
    filler = {f"label-{n}": "x" * 40 for n in range(150)}
    raws = [node(name, text) for name, text in zip(NAMES, annotations(), strict=True)]
    body = question(pod(gpus="4"), nodes=[{**raw, "more": filler} for raw in raws])
    ours = spent(lambda: filtered(parse_question(body), [PASSED] * COUNT), 3)
    plain = spent(lambda: orjson.dumps(orjson.loads(body)), 3)
    slow = spent(lambda: json.dumps(json.loads(body)), 1)
    print(f"\n{len(body) / 1e6:.1f} MB      ms   ratio")
    for name, took in (("ours", ours), ("orjson", plain), ("json", slow)):
        print(f"{name:8} {took:8.1f} {took / plain:7.2f}")
    assert ours / plain < 3
