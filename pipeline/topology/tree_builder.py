"""The tree of what the driver says of each pair."""

from collections.abc import Iterable, Mapping

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Contradiction, Link, Node, Topology
from pipeline.topology.equivalence_classes import Classes
from pipeline.topology.nvlink_domains import domains, usable

_FAR = 1 << 30


def build(read: TopologyRead, previous: Topology | None = None) -> Topology:
    """Build the topology of a node.

    At each level the cards are parted into the classes of "at this level, or closer", closed
    transitively: so each card is in exactly one node of every level, whatever the driver says. A
    pair that it gave no answer for joins nothing closer than SYSTEM. A pair that is told twice
    counts as the closer one. Pairs with a card that isn't among the cards say nothing.

    Args:
        read: what the driver says.
        previous: returned as it is if it was built from the same, in whatever order.
    """
    cards = tuple(sorted(read.cards, key=_order))
    told, doubles = _answers(cards, read.pairs)
    ordered = TopologyRead(cards, tuple(told[key] for key in sorted(told)))
    answers = {
        key: max(pair.level, Level.SINGLE) for key, pair in told.items() if pair.level is not None
    }
    levels, common = _levels(len(cards), answers)
    links = {}
    for key, level in common.items():
        pair = told.get(key)
        boards = pair is not None and pair.level is Level.INTERNAL
        links[key] = Link(
            Level.INTERNAL if boards else level, None if pair is None else usable(pair)
        )
    odd = {key: (level, common[key]) for key, level in answers.items() if level > common[key]}
    odd |= {key: (level, common[key]) for key, level in doubles.items() if key not in odd}
    contradictions = tuple(
        _contradiction(cards, answers, key, *odd[key], twice=key in doubles) for key in sorted(odd)
    )
    if (
        previous is not None
        and previous.read == ordered
        and previous.contradictions == contradictions
    ):
        return previous
    return Topology(ordered, levels, domains(cards, told), contradictions, links, told)


def _order(card: TopologyCard) -> tuple[int, str]:
    return (_FAR if card.index is None else card.index, card.uuid)


def _answers(
    cards: tuple[TopologyCard, ...], pairs: Iterable[TopologyPair]
) -> tuple[dict[tuple[int, int], TopologyPair], dict[tuple[int, int], Level]]:
    """Return what is told by bit numbers, and the further level of pairs told in two ways."""
    number = {card.uuid: place for place, card in enumerate(cards)}
    told: dict[tuple[int, int], TopologyPair] = {}
    doubles: dict[tuple[int, int], Level] = {}
    for pair in pairs:
        i, j = number.get(pair.a), number.get(pair.b)
        if i is None or j is None or i == j:
            continue
        if i > j:
            i, j = j, i
            pair = TopologyPair(pair.b, pair.a, pair.level, pair.nvlinks, pair.reachable)  # noqa: PLW2901
        other = told.setdefault((i, j), pair)
        if other != pair:
            near, far = sorted((other, pair), key=_distance)
            told[i, j] = near
            if far.level is not None and far.level != near.level:
                doubles[i, j] = max(far.level, doubles.get((i, j), far.level))
    return told, doubles


def _distance(pair: TopologyPair) -> int:
    return _FAR if pair.level is None else pair.level


def _levels(
    count: int, answers: Mapping[tuple[int, int], Level]
) -> tuple[dict[Level, tuple[Node, ...]], dict[tuple[int, int], Level]]:
    """Return the nodes of each level, and the level of each pair's lowest common node."""
    made = Classes(count)
    levels: dict[Level, tuple[Node, ...]] = {}
    common: dict[tuple[int, int], Level] = {}
    below: tuple[Node, ...] = ()
    for level in LEVELS:
        for (i, j), answer in answers.items():
            if answer == level:
                made.join(i, j)
        if level is Level.SYSTEM:
            for i in range(1, count):
                made.join(0, i)
        nodes = tuple(
            Node(level, number, mask, tuple(node for node in below if node.mask & mask))
            for number, mask in enumerate(made.masks())
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
    told: Level,
    counts_as: Level,
    *,
    twice: bool,
) -> Contradiction:
    a, b = (cards[number] for number in key)
    names = [card.uuid if card.index is None else f"GPU{card.index}" for card in cards]
    text = f"{names[key[0]]} and {names[key[1]]} are told to be {SYMBOLS[told]} apart"
    if twice:
        text += f", and {SYMBOLS[counts_as]} too"
    else:
        way = _shortest_path(len(cards), answers, key, counts_as)
        over = ", ".join(names[number] for number in way[1:-1])
        text += f", yet by way of {over} they are {SYMBOLS[counts_as]}"
    return Contradiction(a.uuid, b.uuid, told, counts_as, text)


def _shortest_path(
    count: int, answers: Mapping[tuple[int, int], Level], key: tuple[int, int], level: Level
) -> list[int]:
    """Return the shortest way from the one card to the other over pairs at most so far apart."""
    start, end = key
    came: dict[int, int] = {start: start}
    edge = [start]
    while edge and end not in came:
        reached = []
        for here in edge:
            for there in range(count):
                pair = (here, there) if here < there else (there, here)
                if there not in came and answers.get(pair, Level.SYSTEM + 1) <= level:
                    came[there] = here
                    reached.append(there)
        edge = reached
    way = [end]
    while way[-1] != start:
        way.append(came[way[-1]])
    return way[::-1]
