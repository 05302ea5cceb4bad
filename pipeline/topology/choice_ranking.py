"""What makes one choice of GPUs better than another, as whole numbers that add up.

A choice is a set of N cards out of the candidates. It is better than another if, in this order,

1. its link score is higher: the sum of its pairs' scores;
2. what it leaves of the groups is better: among the candidates left, more pairs share an NVLink
   domain; if equally many, more share a node of level SINGLE; then MULTIPLE, HOSTBRIDGE, NODE;
3. the link score of the candidates left is higher;
4. it has the lowest card that is not in both.

Of a single card 1 says nothing, and 2 takes it from the closest group with least left, since it
costs as many pairs as there are other candidates in its group.

1 to 3 are sums over pairs, so that one number for each pair and one for each card hold all of them:
with each pair among the cards left weighing r, the pairs left weigh (all pairs) - (those of each
chosen card) + (those between chosen cards, which were taken off twice).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import LEVELS, Group, Topology
from pipeline.topology.link_scores import Scores


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of choices among some cards, by their places among them.

    The worth of a choice is the sum of `pair` over its pairs plus the sum of `card` over its cards;
    the greater, the better by 1 to 3.

    Attributes:
        cards: bit numbers in the topology, ascending.
        pair: for each two places, symmetric; 0 on the diagonal.
        card: for each place.
    """

    cards: tuple[int, ...]
    pair: tuple[tuple[int, ...], ...]
    card: tuple[int, ...]

    def of(self, places: Sequence[int]) -> int:
        """Return the worth of a choice."""
        total = sum(self.card[i] for i in places)
        for n, i in enumerate(places):
            row = self.pair[i]
            total += sum(row[j] for j in places[:n])
        return total


def worth(topology: Topology, among: int, scores: Scores) -> Worth:
    """Weigh all pairs of the candidates `among`, a mask."""
    cards = tuple(bits(among))
    count = len(cards)
    kept = [[0] * count for _ in cards]
    score = [[0] * count for _ in cards]
    link = topology.links
    total = 0
    for j, b in enumerate(cards):
        for i in range(j):
            value = scores.of(link[cards[i], b])
            score[i][j] = score[j][i] = value
            total += abs(value)
    # Twice the greatest sum, so that no difference of a lower digit outweighs a higher one's unit.
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
