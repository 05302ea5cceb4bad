"""Properties of filter and score for every pod and every cluster."""

import json
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model.bitmask import mask_of
from pipeline.topology.tree_builder import build
from podgpu.extender.node_selection.node_filter import filter_node
from podgpu.extender.node_selection.node_fit import MOST, Fit, fit, scored
from podgpu.extender.node_selection.node_state import NodeKnowledge
from podgpu.extender.node_selection.pod_demand import Demand, Pod, Requirement, groups
from podgpu.extender.scheduler_messages import Question, filtered
from tests.pipeline.topology.layouts import reads
from tests.podgpu.extender.cluster import NOW, knowledge
from tests.support.examples import examples

DEMANDS = st.builds(
    Demand,
    st.integers(0, 9),
    st.none() | st.sampled_from(list(Requirement)),
    st.sampled_from(["", "", "", "a word that means nothing"]),
)


@st.composite
def nodes(draw: st.DrawFn) -> NodeKnowledge:
    topology = build(draw(reads(at_most=6)))
    masks = st.integers(0, topology.mask)
    free = draw(st.none() | masks)
    part = draw(masks) & ~(free or 0)
    age = draw(st.sampled_from([0.0, 0.0, 0.0, 1000.0]))
    devices = draw(st.none() | st.integers(0, len(topology.cards) + 1))
    return draw(
        st.sampled_from(
            [
                knowledge(topology, free, part=part, age=age, devices=devices),
                NodeKnowledge(),
                NodeKnowledge(readable=False),
            ]
        )
    )


@settings(max_examples=examples(60))
@given(DEMANDS, st.lists(nodes(), max_size=4))
def test_each_node_is_in_exactly_one_part_of_the_response(
    demand: Demand, cluster: list[NodeKnowledge]
) -> None:
    names = [f"node-{number}" for number in range(len(cluster))]
    verdicts = [filter_node(demand, node, NOW) for node in cluster]
    answer: Any = json.loads(filtered(Question(Pod(), names), verdicts))
    parts = [answer["NodeNames"], answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]]
    assert sorted(name for part in parts for name in part) == names
    assert answer["NodeNames"] == [name for name in names if name in answer["NodeNames"]]
    assert all(reason for part in parts[1:] for reason in part.values())


@settings(max_examples=examples(60))
@given(DEMANDS, nodes())
def test_one_more_free_gpu_never_makes_a_node_fail(demand: Demand, node: NodeKnowledge) -> None:
    published = node.published
    if published is None or published.free is None:
        return
    age = NOW - published.at
    now_free = [
        knowledge(
            published.topology,
            published.free | 1 << n,
            part=published.part,
            age=age,
            devices=node.devices,
        )
        for n in range(len(published.topology.cards))
    ]
    if not filter_node(demand, node, NOW).reason:
        assert not any(filter_node(demand, other, NOW).reason for other in now_free)


@settings(max_examples=examples(60))
@given(DEMANDS, nodes())
def test_unresolvable_means_that_the_node_fails_even_if_all_gpus_are_free(
    demand: Demand, node: NodeKnowledge
) -> None:
    verdict = filter_node(demand, node, NOW)
    if node.published is not None and verdict.reason:
        whole = filter_node(demand, knowledge(node.published.topology, devices=node.devices), NOW)
        if demand.wrong or not node.published.stale(NOW):
            assert verdict.is_unresolvable == (whole.reason != "")
        else:
            assert not verdict.is_unresolvable


@settings(max_examples=examples(60))
@given(reads(at_most=6), st.data())
def test_a_pod_fits_exactly_if_a_group_has_enough_free_gpus(read: Any, data: st.DataObject) -> None:
    topology = build(read)
    free = data.draw(st.integers(0, topology.mask))
    count = data.draw(st.integers(1, 6))
    required = data.draw(st.none() | st.sampled_from(list(Requirement)))
    made = fit(topology, free, count, required)
    room = any((g & free).bit_count() >= count for g in groups(topology, required))
    assert (made is not None) == room
    if made is not None:
        assert made.left == free.bit_count() - count
        if required is not None:
            anywhere = fit(topology, free, count, None)
            assert anywhere is not None
            assert made.link_score <= anywhere.link_score
            assert made.breaks >= anywhere.breaks


@settings(max_examples=examples(60))
@given(reads(at_most=6), st.data())
def test_a_requirement_holds_whichever_gpus_are_not_allocatable(
    read: Any, data: st.DataObject
) -> None:
    """If a pod passes, some group has enough free GPUs, whichever GPUs are not allocatable."""
    topology = build(read)
    cards = len(topology.cards)
    free = data.draw(st.integers(0, topology.mask))
    devices = data.draw(st.integers(0, cards))
    demand = Demand(data.draw(st.integers(1, 6)), data.draw(st.sampled_from(list(Requirement))))
    if filter_node(demand, knowledge(topology, free, devices=devices), NOW).reason:
        return
    required = groups(topology, demand.requirement)
    for missing in combinations(range(cards), cards - devices):
        allocatable = free & ~mask_of(missing)
        assert any((group & allocatable).bit_count() >= demand.count for group in required)


SEVERAL = st.builds(Fit, st.integers(10, 60_000), st.just(0), st.integers(0, 15))
SINGLE = st.builds(Fit, st.just(0), st.integers(0, 15), st.integers(0, 15))


@given(st.lists(st.none() | SEVERAL, max_size=8) | st.lists(st.none() | SINGLE, max_size=8))
def test_scores_are_0_to_10_and_never_lower_for_a_fit_that_is_no_worse(
    fits: list[Fit | None],
) -> None:
    points = scored(fits)
    assert len(points) == len(fits)
    assert all(0 <= score <= MOST == 10 for score in points)
    pairs = list(zip(fits, points, strict=True))
    for one, mine in pairs:
        if one is None:
            assert mine == 0
            continue
        for other, theirs in pairs:
            if (
                other is not None
                and one.link_score >= other.link_score
                and one.breaks <= other.breaks
                and one.left <= other.left
            ):
                assert mine >= theirs
