"""The tree has every GPU, and each pair at the level that the driver reports or implies."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Node, Topology
from pipeline.topology.tree_builder import build
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
from tests.support.examples import examples


def lowest(topology: Topology, mask: int) -> Node:
    """Return the closest node that contains all of these cards."""
    nodes = (node for level in LEVELS for node in topology.levels[level])
    return next(node for node in nodes if mask & ~node.mask == 0)


def closure(answers: TopologyRead) -> dict[tuple[int, int], Level]:
    """Return the lowest level of any path between two GPUs, by the Floyd-Warshall algorithm."""
    place = {c.uuid: n for n, c in enumerate(answers.cards)}
    far = {(i, j): SYS for i in place.values() for j in place.values()}
    for pair in answers.pairs:
        if pair.level is not None:
            i, j = place[pair.a], place[pair.b]
            far[i, j] = far[j, i] = max(pair.level, PIX)
    for k in place.values():
        far = {(i, j): min(now, max(far[i, k], far[k, j])) for (i, j), now in far.items()}
    return {(i, j): level for (i, j), level in far.items() if i < j}


def below(node: Node) -> list[Node]:
    return [node, *(found for child in node.branches for found in below(child))]


@settings(max_examples=examples(50))
@given(reads(at_most=8) | reads(at_most=14, sparse=True))
def test_every_level_has_every_gpu_once_and_is_nested_in_the_next(answers: TopologyRead) -> None:
    topology = build(answers)
    finer: tuple[Node, ...] = ()
    assert list(topology.levels) == list(LEVELS)
    for level in LEVELS:
        nodes = topology.levels[level]
        assert sum(node.mask for node in nodes) == topology.mask, "a GPU is lost, or in two nodes"
        assert sum(node.mask.bit_count() for node in nodes) == len(answers.cards)
        assert [node.number for node in nodes] == list(range(len(nodes)))
        for node in nodes if finer else ():
            assert sum(child.mask for child in node.children) == node.mask
            assert set(node.children) <= set(finer)
        finer = nodes
    assert len(topology.levels[SYS]) == 1


@settings(max_examples=examples(50))
@given(reads(at_most=8) | reads(at_most=14, sparse=True))
def test_the_lowest_common_node_has_the_reported_or_implied_level(answers: TopologyRead) -> None:
    topology = build(answers)
    expected = closure(answers)
    for (i, j), level in expected.items():
        node = lowest(topology, 1 << i | 1 << j)
        assert node.level == level
        answer = topology.answers[i, j].level
        assert topology.links[i, j].level == (answer if answer is Level.INTERNAL else level)
    assert topology.root is not None
    folded = below(topology.root)
    for (i, j), level in expected.items():
        both = [node for node in folded if node.mask >> i & node.mask >> j & 1]
        assert min(both, key=lambda node: node.mask.bit_count()).level == level


@settings(max_examples=examples(50))
@given(reads(at_most=12, sparse=True))
def test_every_node_of_the_folded_tree_branches_or_is_one_gpu(answers: TopologyRead) -> None:
    root = build(answers).root
    assert root is not None
    nodes = below(root)
    assert len({node.mask for node in nodes}) == len(nodes)
    for node in nodes:
        if node.level is not PIX:
            assert len(node.branches) > 1
            assert sum(child.mask for child in node.branches) == node.mask


@settings(max_examples=examples(50))
@given(reads(at_most=8, sparse=True))
def test_pairs_reported_as_more_distant_than_implied_are_contradictions(
    answers: TopologyRead,
) -> None:
    topology = build(answers)
    level = closure(answers)
    expected = {
        (pair.a, pair.b): (SYMBOLS[max(pair.level, PIX)], SYMBOLS[level[i, j]])
        for (i, j), pair in topology.answers.items()
        if pair.level is not None and max(pair.level, PIX) > level[i, j]
    }
    levels = re.compile(r".* as (\w+), .* (\w+)")
    found = {pair: levels.fullmatch(text) for pair, text in topology.contradictions.items()}
    assert {pair: match and match.groups() for pair, match in found.items()} == expected


@settings(max_examples=examples(50))
@given(reads(), st.randoms(use_true_random=False))
def test_order_and_direction_of_pairs_do_not_matter(
    answers: TopologyRead, order: random.Random
) -> None:
    topology = build(answers)
    pairs = [
        pair
        if order.random() < 0.5
        else TopologyPair(pair.b, pair.a, pair.level, pair.nvlinks, pair.reachable)
        for pair in answers.pairs
    ]
    order.shuffle(pairs)
    cards = list(answers.cards)
    order.shuffle(cards)
    assert build(TopologyRead(tuple(cards), tuple(pairs)), topology) is topology


def test_a_changed_pair_makes_a_new_topology() -> None:
    before = pcie()
    pairs = before.read.pairs
    fewer = TopologyRead(before.cards, pairs[1:])
    assert build(fewer, before) is not before


def test_a_contradiction_names_the_shorter_path() -> None:
    answers = {(0, 1): PIX, (1, 2): PXB, (0, 2): SYS}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (answers[i, j], 0, False)))
    assert topology.contradictions == {
        (topology.cards[0].uuid, topology.cards[2].uuid): (
            "the driver reports GPU0 and GPU2 as SYS, but through GPU1 they are PXB"
        )
    }
    assert topology.links[0, 2].level is PXB


def test_a_pair_with_two_levels_has_the_closer_one_and_is_a_contradiction() -> None:
    cards = (card(0), card(1))
    one, other = (
        TopologyPair(cards[0].uuid, cards[1].uuid, PHB, 0, False),
        TopologyPair(cards[1].uuid, cards[0].uuid, NODE, 0, False),
    )
    topology = build(TopologyRead(cards, (other, one)))
    assert topology.links[0, 1].level is PHB
    (found,) = topology.contradictions.values()
    assert found == "the driver reports GPU0 and GPU1 as NODE, and also as PHB"
    assert build(TopologyRead(cards, (one, other)), topology) is topology
    assert not build(TopologyRead(cards, (one,)), topology).contradictions


def test_two_gpus_on_one_board_are_below_one_switch_in_the_tree() -> None:
    """Four boards with two GPUs each. Two boards share one switch."""

    def answer(i: int, j: int) -> tuple[Level, int, bool]:
        if i // 2 == j // 2:
            return Level.INTERNAL, 0, False
        return (PIX if i // 4 == j // 4 else SYS), 0, False

    topology = build(read([card(n) for n in range(8)], answer))
    assert [node.mask for node in topology.levels[PIX]] == [0x0F, 0xF0]
    assert topology.links[0, 1].level is Level.INTERNAL
    assert topology.links[1, 2].level is PIX
    assert not topology.contradictions


def test_gpus_of_a_virtual_machine_without_answers_are_separate() -> None:
    cards = [TopologyCard(f"GPU-{n}", None, "", None, (), None) for n in (2, 0, 1)]
    topology = build(read(cards, lambda _i, _j: (None, None, None)))
    assert [c.uuid for c in topology.cards] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [node.mask for node in topology.levels[NODE]] == [1, 2, 4]
    assert topology.links[0, 2] == (SYS, None)
    assert topology.domains == ()
    assert not topology.contradictions
    assert build(TopologyRead(tuple(cards), ())).links[0, 2] == (SYS, None)


def test_an_unanswered_pair_gets_its_level_from_other_pairs() -> None:
    answers = {(0, 1): PIX, (1, 2): PIX, (0, 2): None}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (answers[i, j], 0, False)))
    assert topology.links[0, 2].level is PIX
    assert not topology.contradictions


def test_pairs_with_an_unknown_gpu_are_ignored() -> None:
    whole = pcie(4)
    topology = build(TopologyRead(whole.cards[:3], whole.read.pairs))
    assert topology.mask == 0b111
    assert len(topology.links) == 3


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64])
def test_a_tree_has_0_to_64_gpus(count: int) -> None:
    topology = pcie(count) if count > 1 else build(read([card(n) for n in range(count)], _never))
    assert topology.mask == (1 << count) - 1
    assert (topology.root is None) == (count == 0)
    assert len(topology.links) == count * (count - 1) // 2
    if count:
        assert topology.levels[SYS][0].mask == topology.mask


def _never(i: int, j: int) -> tuple[None, None, None]:
    raise AssertionError((i, j))


def test_levels_without_branches_are_folded_in_the_tree() -> None:
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


def test_the_tree_of_eight_gpus_has_sockets_and_switches() -> None:
    topology = pcie()
    assert topology.root is not None
    shape = [(n.level, n.mask, [c.mask for c in n.branches]) for n in below(topology.root)]
    assert shape[0] == (SYS, 0xFF, [0x0F, 0xF0])
    assert shape[1] == (NODE, 0x0F, [0x03, 0x0C])
    assert shape[2] == (PIX, 0x03, [])


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
