"""Ranking of choices of GPUs, as integers that can be added.

A choice is a set of N cards of the candidates. It is better than another one if, in this order,

1. its link score is higher: the sum of the scores of its pairs;
2. the remaining candidates are better grouped: more of their pairs share an NVLink domain; if
   equally many, more share a node of level SINGLE; then MULTIPLE, HOSTBRIDGE, NODE;
3. the link score of the remaining candidates is higher;
4. it has the lowest card that is not in both.

For a single card, criterion 1 is always 0, and criterion 2 takes the card from the closest group
with the fewest remaining candidates, because each other candidate in its group is one pair less.

Criteria 1 to 3 are sums over pairs, so that one number for each pair and one for each card contain
all of them: the *worth*. If each pair among the remaining cards has weight r, the remaining pairs
weigh (all pairs) - (the pairs of each chosen card) + (the pairs between chosen cards, which were
subtracted twice).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from pipeline.model import Level
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Group, Link, Topology

_LEVEL_SCORES: Final[Mapping[Level, int]] = {
    Level.INTERNAL: 60,
    Level.SINGLE: 50,
    Level.MULTIPLE: 40,
    Level.HOSTBRIDGE: 30,
    Level.NODE: 20,
    Level.SYSTEM: 10,
}
_NVLINK_SCORE: Final = 100


def link_score(link: Link) -> int:
    """Return how much a connection between two GPUs is worth; unknown NVLinks count as none.

    These are the scores of NVIDIA's go-gpuallocator, which its device plugin uses.
    """
    return _LEVEL_SCORES[link.level] + _NVLINK_SCORE * (link.nvlinks or 0)


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of choices among some cards. A *place* is the position of a card among them.

    The worth of a choice is the sum of `pair` over its pairs plus the sum of `card` over its cards.
    Of two choices, the one with the greater worth is better by criteria 1 to 3 of this module.

    Attributes:
        cards: bit numbers in the topology, ascending.
        pair: what two chosen places add to the worth; symmetric, 0 on the diagonal.
        card: what each chosen place adds to the worth.
    """

    cards: tuple[int, ...]
    pair: tuple[tuple[int, ...], ...]
    card: tuple[int, ...]

    def of(self, places: Sequence[int]) -> int:
        """Return the worth of a choice."""
        pairs = sum(self.pair[i][j] for i, j in combinations(places, 2))
        return pairs + sum(self.card[i] for i in places)


def worth(topology: Topology, among: int, score_of: Callable[[Link], int]) -> Worth:
    """Return a `Worth`, which gives the worth of each choice among some GPUs.

    Args:
        topology: the topology of the node.
        among: mask of the candidates.
        score_of: returns the score of the link between two GPUs.
    """
    cards = tuple(bits(among))
    count = len(cards)
    kept = [[0] * count for _ in cards]
    score = [[0] * count for _ in cards]
    link = topology.links
    total = 0
    for j, b in enumerate(cards):
        for i in range(j):
            value = score_of(link[cards[i], b])
            score[i][j] = score[j][i] = value
            total += abs(value)
    # More than twice the greatest sum, so that no difference in a lower digit exceeds one unit.
    unit = 1 << (2 * total + 1).bit_length()
    step = 1 << (count * count + 1).bit_length()
    families: list[tuple[Group, ...]] = [topology.levels[lv] for lv in reversed(LEVELS[:-1])]
    for family in [*families, topology.domains]:
        for group in family:
            inside = [n for n, card in enumerate(cards) if group.mask >> card & 1]
            for n, i in enumerate(inside):
                for j in inside[:n]:
                    kept[i][j] += unit
                    kept[j][i] += unit
        unit *= step
    pair = []
    card = []
    for i in range(count):
        left = [kept[i][j] + score[i][j] for j in range(count)]
        card.append(-sum(left))
        pair.append(tuple(score[i][j] * unit + left[j] for j in range(count)))
    return Worth(cards, tuple(pair), tuple(card))
