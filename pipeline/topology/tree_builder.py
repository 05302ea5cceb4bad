"""Builds the topology tree from the driver's report on each pair of GPUs."""

from collections.abc import Iterable, Mapping

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Link, Node, Topology
from pipeline.topology.nvlink_domains import domains, join_classes, usable

_FAR = 1 << 30


def build(read: TopologyRead, previous: Topology | None = None) -> Topology:
    """Build the topology of a node.

    At each level the cards are divided into classes of "at this level, or closer", closed
    transitively. So each card is in exactly one node of every level, whatever the driver reports.
    Two cards without an answer for their pair are joined only at SYSTEM, unless other pairs join
    them. A pair that is reported twice counts as the closer one. Pairs with an unknown card are
    ignored.

    Args:
        read: the driver's report.
        previous: an earlier topology. It is returned if a new one would be the same.
    """
    by_index = sorted(
        read.cards, key=lambda card: (_FAR if card.index is None else card.index, card.uuid)
    )
    cards = tuple(by_index)
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
    names = [card.uuid if card.index is None else f"GPU{card.index}" for card in cards]
    contradictions: dict[tuple[str, ...], str] = {}
    for (i, j), level in sorted(contradicting.items()):
        text = f"the driver reports {names[i]} and {names[j]} as {SYMBOLS[level]}, "
        counts_as = common[i, j]
        if (i, j) in second_levels:
            text += f"and also as {SYMBOLS[counts_as]}"
        else:
            path = _shortest_path(len(cards), answers, (i, j), counts_as)
            over = ", ".join(names[number] for number in path[1:-1])
            text += f"but through {over} they are {SYMBOLS[counts_as]}"
        contradictions[cards[i].uuid, cards[j].uuid] = text
    if previous and (previous.read, previous.contradictions) == (ordered, contradictions):
        return previous
    return Topology(ordered, levels, domains(cards, pairs), contradictions, links, pairs)


def _answers(
    cards: tuple[TopologyCard, ...], pairs: Iterable[TopologyPair]
) -> tuple[dict[tuple[int, int], TopologyPair], dict[tuple[int, int], Level]]:
    """Return the answers by bit numbers, and the farther level of each pair with two levels."""
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
            near, far = sorted(
                (other, pair), key=lambda one: _FAR if one.level is None else one.level
            )
            answers[i, j] = near
            if far.level is not None and far.level != near.level:
                second_levels[i, j] = max(far.level, second_levels.get((i, j), far.level))
    return answers, second_levels


def _levels(
    count: int, answers: Mapping[tuple[int, int], Level]
) -> tuple[dict[Level, tuple[Node, ...]], dict[tuple[int, int], Level]]:
    """Return the nodes of each level, and the level of each pair's lowest common node."""
    classes = [1 << number for number in range(count)]
    levels: dict[Level, tuple[Node, ...]] = {}
    common: dict[tuple[int, int], Level] = {}
    below: tuple[Node, ...] = ()
    for level in LEVELS:
        for (i, j), answer in answers.items():
            if answer == level:
                join_classes(classes, i, j)
        if level is Level.SYSTEM:
            classes = [(1 << count) - 1] * count
        nodes = tuple(
            Node(level, number, mask, tuple(node for node in below if node.mask & mask))
            for number, mask in enumerate(dict.fromkeys(classes))
        )
        for node in nodes:
            for i in bits(node.mask):
                for j in bits(node.mask >> (i + 1) << (i + 1)):
                    common.setdefault((i, j), level)
        levels[level] = below = nodes
    return levels, common


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
