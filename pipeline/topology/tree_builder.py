"""Builds the topology tree from the driver's report on each pair of GPUs."""

from collections.abc import Iterable, Mapping

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Contradiction, Link, Node, Topology
from pipeline.topology.equivalence_classes import Classes
from pipeline.topology.nvlink_domains import domains, usable

_FAR = 1 << 30


def build(read: TopologyRead, previous: Topology | None = None) -> Topology:
    """Build the topology of a node.

    At each level the cards are divided into classes of "at this level, or closer", closed
    transitively. So each card is in exactly one node of every level, whatever the driver reports. A
    pair without an answer joins its cards only at SYSTEM. A pair that is reported twice counts as
    the closer one. Pairs with an unknown card are ignored.

    Args:
        read: the driver's report.
        previous: returned unchanged if it was built from the same report, in any order.
    """
    cards = tuple(sorted(read.cards, key=_order))
    pairs, second_levels = _answers(cards, read.pairs)
    ordered = TopologyRead(cards, tuple(pairs[key] for key in sorted(pairs)))
    answers = {
        key: max(pair.level, Level.SINGLE) for key, pair in pairs.items() if pair.level is not None
    }
    levels, common = _levels(len(cards), answers)
    links = {}
    for key, level in common.items():
        pair = pairs.get(key)
        same_board = pair is not None and pair.level is Level.INTERNAL
        links[key] = Link(
            Level.INTERNAL if same_board else level, None if pair is None else usable(pair)
        )
    contradicting = second_levels | {
        key: level for key, level in answers.items() if level > common[key]
    }
    contradictions = tuple(
        _contradiction(cards, answers, key, level, common[key], twice=key in second_levels)
        for key, level in sorted(contradicting.items())
    )
    if (
        previous is not None
        and previous.read == ordered
        and previous.contradictions == contradictions
    ):
        return previous
    return Topology(ordered, levels, domains(cards, pairs), contradictions, links, pairs)


def _order(card: TopologyCard) -> tuple[int, str]:
    return (_FAR if card.index is None else card.index, card.uuid)


def _answers(
    cards: tuple[TopologyCard, ...], pairs: Iterable[TopologyPair]
) -> tuple[dict[tuple[int, int], TopologyPair], dict[tuple[int, int], Level]]:
    """Return the answers by bit numbers, and the more distant level of pairs with two answers."""
    number = {card.uuid: place for place, card in enumerate(cards)}
    answers: dict[tuple[int, int], TopologyPair] = {}
    second_levels: dict[tuple[int, int], Level] = {}
    for pair in pairs:
        i, j = number.get(pair.a), number.get(pair.b)
        if i is None or j is None or i == j:
            continue
        if i > j:
            i, j = j, i
            pair = TopologyPair(pair.b, pair.a, pair.level, pair.nvlinks, pair.reachable)  # noqa: PLW2901
        other = answers.setdefault((i, j), pair)
        if other != pair:
            near, far = sorted((other, pair), key=_distance)
            answers[i, j] = near
            if far.level is not None and far.level != near.level:
                second_levels[i, j] = max(far.level, second_levels.get((i, j), far.level))
    return answers, second_levels


def _distance(pair: TopologyPair) -> int:
    return _FAR if pair.level is None else pair.level


def _levels(
    count: int, answers: Mapping[tuple[int, int], Level]
) -> tuple[dict[Level, tuple[Node, ...]], dict[tuple[int, int], Level]]:
    """Return the nodes of each level, and the level of each pair's lowest common node."""
    classes = Classes(count)
    levels: dict[Level, tuple[Node, ...]] = {}
    common: dict[tuple[int, int], Level] = {}
    below: tuple[Node, ...] = ()
    for level in LEVELS:
        for (i, j), answer in answers.items():
            if answer == level:
                classes.join(i, j)
        if level is Level.SYSTEM:
            for i in range(1, count):
                classes.join(0, i)
        nodes = tuple(
            Node(level, number, mask, tuple(node for node in below if node.mask & mask))
            for number, mask in enumerate(classes.masks())
        )
        for node in nodes:
            for i in bits(node.mask):
                for j in bits(node.mask >> (i + 1) << (i + 1)):
                    common.setdefault((i, j), level)
        levels[level] = below = nodes
    return levels, common


def _contradiction(
    cards: tuple[TopologyCard, ...],
    answers: Mapping[tuple[int, int], Level],
    key: tuple[int, int],
    reported: Level,
    counts_as: Level,
    *,
    twice: bool,
) -> Contradiction:
    a, b = (cards[number] for number in key)
    names = [card.uuid if card.index is None else f"GPU{card.index}" for card in cards]
    text = f"the driver reports {names[key[0]]} and {names[key[1]]} as {SYMBOLS[reported]}"
    if twice:
        text += f", and also as {SYMBOLS[counts_as]}"
    else:
        path = _shortest_path(len(cards), answers, key, counts_as)
        over = ", ".join(names[number] for number in path[1:-1])
        text += f", but through {over} they are {SYMBOLS[counts_as]}"
    return Contradiction(a.uuid, b.uuid, reported, counts_as, text)


def _shortest_path(
    count: int, answers: Mapping[tuple[int, int], Level], key: tuple[int, int], level: Level
) -> list[int]:
    """Return the shortest path from one card to the other over pairs of this level or closer."""
    start, end = key
    previous: dict[int, int] = {start: start}
    frontier = [start]
    while frontier and end not in previous:
        reached = []
        for card in frontier:
            for neighbour in range(count):
                pair = (card, neighbour) if card < neighbour else (neighbour, card)
                if neighbour not in previous and answers.get(pair, Level.SYSTEM + 1) <= level:
                    previous[neighbour] = card
                    reached.append(neighbour)
        frontier = reached
    path = [end]
    while path[-1] != start:
        path.append(previous[path[-1]])
    return path[::-1]
