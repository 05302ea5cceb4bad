"""The tree loses no GPU, and has each pair as close as the driver says, or its closure."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Node, Topology
from pipeline.topology import build
from tests.pipeline.topology.layouts import (
    NODE,
    PHB,
    PIX,
    PXB,
    SYS,
    card,
    four_h100,
    hgx,
    pcie,
    read,
    reads,
)


def closure(said: TopologyRead) -> dict[tuple[int, int], Level]:
    """By bit numbers: the least that some way between the two must climb. Floyd and Warshall's."""
    place = {c.uuid: n for n, c in enumerate(said.cards)}
    far = {(i, j): SYS for i in place.values() for j in place.values()}
    for pair in said.pairs:
        if pair.level is not None:
            i, j = place[pair.a], place[pair.b]
            far[i, j] = far[j, i] = max(pair.level, PIX)
    for k in place.values():
        far = {(i, j): min(now, max(far[i, k], far[k, j])) for (i, j), now in far.items()}
    return {(i, j): level for (i, j), level in far.items() if i < j}


def below(node: Node) -> list[Node]:
    return [node, *(found for child in node.branches for found in below(child))]


@given(reads(at_most=10) | reads(at_most=24, sparse=True))
def test_every_level_has_every_gpu_once_and_nests_in_the_next(said: TopologyRead) -> None:
    topology = build(said)
    finer: tuple[Node, ...] = ()
    assert list(topology.levels) == list(LEVELS)
    for level in LEVELS:
        nodes = topology.levels[level]
        assert sum(node.mask for node in nodes) == topology.mask, "a GPU is lost, or in two nodes"
        assert sum(node.mask.bit_count() for node in nodes) == len(said.cards)
        assert [node.number for node in nodes] == list(range(len(nodes)))
        for node in nodes if finer else ():
            assert sum(child.mask for child in node.children) == node.mask
            assert set(node.children) <= set(finer)
        finer = nodes
    assert len(topology.levels[SYS]) == 1


@given(reads(at_most=10) | reads(at_most=24, sparse=True))
def test_the_lowest_common_node_has_the_driver_s_level_or_its_closure(said: TopologyRead) -> None:
    topology = build(said)
    expected = closure(said)
    for (i, j), level in expected.items():
        node = topology.lowest(1 << i | 1 << j)
        assert node is not None
        assert node.level == level
        given_out = topology.answers[i, j].level
        assert topology.link(j, i).level == (given_out if given_out is Level.INTERNAL else level)
    assert topology.root is not None
    folded = below(topology.root)
    for (i, j), level in expected.items():
        both = [node for node in folded if node.mask >> i & node.mask >> j & 1]
        assert min(both, key=lambda node: node.mask.bit_count()).level == level


@given(reads(at_most=12, sparse=True))
def test_folded_every_node_branches_or_is_one_gpu(said: TopologyRead) -> None:
    root = build(said).root
    assert root is not None
    nodes = below(root)
    assert len({node.mask for node in nodes}) == len(nodes)
    for node in nodes:
        if node.level is not PIX:
            assert len(node.branches) > 1
            assert sum(child.mask for child in node.branches) == node.mask


@given(reads(at_most=8, sparse=True))
def test_pairs_reported_to_be_further_than_the_closure_are_named(said: TopologyRead) -> None:
    topology = build(said)
    level = closure(said)
    expected = {
        (pair.a, pair.b, max(pair.level, PIX), level[i, j])
        for (i, j), pair in topology.answers.items()
        if pair.level is not None and max(pair.level, PIX) > level[i, j]
    }
    assert {(c.a, c.b, c.reported_level, c.counts_as) for c in topology.contradictions} == expected


@given(reads(), st.randoms(use_true_random=False))
def test_order_and_direction_of_what_is_read_change_nothing(
    said: TopologyRead, order: random.Random
) -> None:
    topology = build(said)
    pairs = [
        pair
        if order.random() < 0.5
        else TopologyPair(pair.b, pair.a, pair.level, pair.nvlinks, pair.reachable)
        for pair in said.pairs
    ]
    order.shuffle(pairs)
    cards = list(said.cards)
    order.shuffle(cards)
    assert build(TopologyRead(tuple(cards), tuple(pairs)), topology) is topology


def test_a_change_makes_another_topology() -> None:
    before = pcie()
    pairs = before.read.pairs
    fewer = TopologyRead(before.cards, pairs[1:])
    assert build(fewer, before) is not before


def test_the_contradiction_names_the_way_that_the_answers_leave_open() -> None:
    said = {(0, 1): PIX, (1, 2): PXB, (0, 2): SYS}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (said[i, j], 0, False)))
    (found,) = topology.contradictions
    assert found.text == "the driver reports GPU0 and GPU2 as SYS, but through GPU1 they are PXB"
    assert (found.a, found.b) == (topology.cards[0].uuid, topology.cards[2].uuid)
    assert topology.link(0, 2).level is PXB


def test_a_pair_reported_in_two_ways_counts_as_the_closer_and_is_named() -> None:
    cards = (card(0), card(1))
    one, other = (
        TopologyPair(cards[0].uuid, cards[1].uuid, PHB, 0, False),
        TopologyPair(cards[1].uuid, cards[0].uuid, NODE, 0, False),
    )
    topology = build(TopologyRead(cards, (other, one)))
    assert topology.link(0, 1).level is PHB
    (found,) = topology.contradictions
    assert found.text == "the driver reports GPU0 and GPU1 as NODE, and also as PHB"
    assert build(TopologyRead(cards, (one, other)), topology) is topology
    assert build(TopologyRead(cards, (one,)), topology).contradictions == ()


def test_a_board_of_two_is_one_switch_in_the_tree_and_a_board_in_the_link() -> None:
    """Four boards; two of them behind one switch each."""

    def given_out(i: int, j: int) -> tuple[Level, int, bool]:
        if i // 2 == j // 2:
            return Level.INTERNAL, 0, False
        return (PIX if i // 4 == j // 4 else SYS), 0, False

    topology = build(read([card(n) for n in range(8)], given_out))
    assert [node.mask for node in topology.levels[PIX]] == [0x0F, 0xF0]
    assert topology.link(0, 1).level is Level.INTERNAL
    assert topology.link(1, 2).level is PIX
    assert topology.contradictions == ()


def test_a_guest_without_answers_has_its_gpus_apart() -> None:
    cards = [TopologyCard(f"GPU-{n}", None, "", None, (), None) for n in (2, 0, 1)]
    topology = build(read(cards, lambda _i, _j: (None, None, None)))
    assert [c.uuid for c in topology.cards] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [node.mask for node in topology.levels[NODE]] == [1, 2, 4]
    assert topology.link(0, 2) == (SYS, None)
    assert topology.domains == ()
    assert topology.contradictions == ()
    assert build(TopologyRead(tuple(cards), ())).link(0, 2) == (SYS, None)


def test_an_unanswered_pair_is_closer_when_others_say_so_and_that_is_no_contradiction() -> None:
    said = {(0, 1): PIX, (1, 2): PIX, (0, 2): None}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (said[i, j], 0, False)))
    assert topology.link(0, 2).level is PIX
    assert topology.contradictions == ()


def test_pairs_with_a_gpu_that_is_gone_say_nothing() -> None:
    whole = pcie(4)
    topology = build(TopologyRead(whole.cards[:3], whole.read.pairs))
    assert topology.mask == 0b111
    assert len(topology.links) == 3


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64])
def test_any_number_of_gpus(count: int) -> None:
    topology = pcie(count) if count > 1 else build(read([card(n) for n in range(count)], _never))
    assert topology.mask == (1 << count) - 1
    assert (topology.root is None) == (count == 0)
    assert len(topology.links) == count * (count - 1) // 2
    if count:
        assert topology.levels[SYS][0].mask == topology.mask


def _never(i: int, j: int) -> tuple[None, None, None]:
    raise AssertionError((i, j))


def test_chains_are_kept_in_the_levels_and_folded_in_the_tree() -> None:
    topology = four_h100()
    assert {
        level.name: [node.mask for node in nodes] for level, nodes in topology.levels.items()
    } == {
        "SINGLE": [1, 2, 4, 8],
        "MULTIPLE": [1, 2, 4, 8],
        "HOSTBRIDGE": [15],
        "NODE": [15],
        "SYSTEM": [15],
    }
    assert topology.root is not None
    assert topology.root.level is PHB
    assert [(n.level, n.mask) for n in topology.root.branches] == [(PIX, 1 << n) for n in range(4)]


def test_nodes_of_the_root_of_eight() -> None:
    topology = pcie()
    assert topology.root is not None
    shape = [(n.level, n.mask, [c.mask for c in n.branches]) for n in below(topology.root)]
    assert shape[0] == (SYS, 0xFF, [0x0F, 0xF0])
    assert shape[1] == (NODE, 0x0F, [0x03, 0x0C])
    assert shape[2] == (PIX, 0x03, [])
    assert topology.lowest(0) is topology.levels[PIX][0]
    assert topology.lowest(1 << 9) is None


def test_names_are_short() -> None:
    topology = hgx()
    assert topology.names(0b1011_0111) == "GPU 0-2,4-5,7"
    nameless = build(
        read(
            [card(0), TopologyCard("GPU-x", None, "", None, (), 0)], lambda _i, _j: (SYS, 0, False)
        )
    )
    assert nameless.names(0b11) == "GPU 0, GPU-x"
    assert json.dumps([nameless.name(n) for n in bits(nameless.mask)]) == '["GPU0", "GPU-x"]'


def test_no_such_pair() -> None:
    topology: Topology = hgx()
    with pytest.raises(KeyError):
        topology.link(3, 3)
    with pytest.raises(KeyError):
        topology.link(3, 8)
