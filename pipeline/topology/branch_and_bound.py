"""Search for the best choice of N places, by branch and bound.

A *place* is the position of a card among the candidates. The *worth* of a choice is a number; a
better choice has a greater worth. A *swap* exchanges places without a change of any worth. (See
`choice_ranking` and `symmetry`.)

Choices are tried in the order of their places, lowest first, so that of several equal choices the
one with the lowest cards is found first. A branch is cut when

* its upper bound is less than the worth of the best choice found so far, or equal to it. An equal
  bound cuts only after the search itself has found a choice of that worth. The bound is the worth
  of the places chosen so far, plus the sum over the best open places, as many as are still to be
  chosen. An open place counts with what it adds to the chosen places, plus half of its best pairs
  with other open places;
* a swap exists that exchanges the new place for a lower one and moves no chosen place. Every choice
  with that lower place was tried before, or was cut.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from pipeline.model.bitmask import bits
from pipeline.topology.choice_ranking import Worth


class Search:
    """A search for the best `n` places."""

    def __init__(
        self,
        worth: Worth,
        n: int,
        *,
        must: int,
        lower: Sequence[Sequence[int]],
        limit: int | None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare the search.

        Args:
            worth: the worth of choices.
            n: how many places to choose, including those of `must`; no more than there are.
            must: mask of the places that are in every choice.
            lower: for each place, the masks of the places that move in a swap that exchanges it for
                a lower place.
            limit: maximum number of branches; None for no limit.
            stop: called at each branch; if it returns True, the search ends as at the limit.
        """
        self._pair = worth.pair
        self._worth = worth
        self._lower = lower
        self._limit = limit
        self._stop = stop
        self._must = must
        self._order = [i for i in range(len(worth.cards)) if not must >> i & 1]
        self._open = n - must.bit_count()
        self._best = -1
        self._mark = 0
        self._proven = False
        self._steps = 0
        self._stopped = False
        # By position in the order: for each place from there on, the cumulative sums of its best
        # pairs with the places from there on.
        self._sums: dict[int, list[list[int]]] = {}

    def run(self) -> tuple[int, bool]:
        """Return the mask of the chosen places, and whether no choice is better.

        If the search was stopped, or reached the limit, a better choice may exist. The result is
        then at least as good as the greedy choice from any first place, and no exchange of one
        place for another improves it.
        """
        start = self._worth.of(list(bits(self._must)))
        gains = self._beside(self._must)
        self._best = self._guess(gains)
        self._mark = self._worth.of(list(bits(self._best)))
        self._branch(0, self._must, start, [gains[i] for i in self._order], self._open)
        if self._stopped:
            self._best = self._exchanged(self._best, self._beside(self._best))
        return self._best, not self._stopped

    def _beside(self, mask: int) -> list[int]:
        """Return what each place adds to the chosen ones, or has added if it is one of them."""
        chosen = list(bits(mask))
        return [
            card + sum(row[j] for j in chosen)
            for card, row in zip(self._worth.card, self._pair, strict=True)
        ]

    def _branch(self, position: int, chosen: int, value: int, gains: list[int], count: int) -> None:
        """Try the choices of `count` more places, from `position` of the order on.

        Args:
            position: position in the order.
            chosen: mask of the places chosen so far.
            value: worth of the chosen places.
            gains: from `position` on, what each place adds to the worth.
            count: how many places to choose; 0 only if there was nothing to choose from the start.
        """
        if count == 0:
            self._take(chosen, value)
            return
        order, lower = self._order, self._lower
        last = len(order) - count
        while position <= last:
            if self._stopped or self._cut(position, value, gains, count):
                return
            place, gain, gains = order[position], gains[0], gains[1:]
            position += 1
            if any(support & chosen == 0 for support in lower[place]):
                continue
            self._steps += 1
            if (self._limit is not None and self._steps > self._limit) or (
                self._stop is not None and self._stop()
            ):
                self._stopped = True
                return
            if count == 1:
                self._take(chosen | 1 << place, value + gain)
                continue
            row = self._pair[place]
            further = [g + row[j] for g, j in zip(gains, order[position:], strict=True)]
            self._branch(position, chosen | 1 << place, value + gain, further, count - 1)

    def _take(self, chosen: int, value: int) -> None:
        # The guess is only a bound: an equally good choice that comes first in the order wins.
        if value > self._mark or (value == self._mark and not self._proven):
            self._best, self._mark, self._proven = chosen, value, True

    def _cut(self, position: int, value: int, gains: list[int], count: int) -> bool:
        sums = self._sums.get(position)
        if sums is None:
            sums = self._sums[position] = self._pairs_from(position)
        most = sorted(
            [2 * gain + best[count - 1] for gain, best in zip(gains, sums, strict=True)],
            reverse=True,
        )
        bound = 2 * value + sum(most[:count])
        mark = 2 * self._mark
        return bound < mark or (bound == mark and self._proven)

    def _pairs_from(self, position: int) -> list[list[int]]:
        rest = self._order[position:]
        sums = []
        for i in rest:
            row = self._pair[i]
            best = sorted([row[j] for j in rest if j != i], reverse=True)[: self._open]
            sums.append([0, *accumulate(best)])
        return sums

    def _guess(self, gains: list[int]) -> int:
        """Return a good choice: the best greedy one of all first places, improved by exchanges."""
        greedy = [self._greedy(first, gains) for first in self._order if self._open]
        if not greedy:
            return self._must
        _, mask, gains_after = max(greedy, key=lambda choice: choice[0])
        return self._exchanged(mask, gains_after)

    def _greedy(self, first: int, gains: list[int]) -> tuple[int, int, list[int]]:
        """Return worth, mask and gains of the greedy choice that starts with `first`."""
        mask, value, place = self._must, 0, first
        for n in range(self._open):
            mask |= 1 << place
            value += gains[place]
            gains = [g + w for g, w in zip(gains, self._pair[place], strict=True)]
            if n + 1 < self._open:
                place = max((i for i in self._order if not mask >> i & 1), key=gains.__getitem__)
        return value, mask, gains

    def _exchanged(self, mask: int, gains: list[int]) -> int:
        """Exchange chosen places for others while this improves the choice; return its mask.

        One place is exchanged at a time. Places that must be chosen are kept.
        """
        while True:
            moves = [
                (gains[j] - gains[i] - self._pair[i][j], i, j)
                for i in bits(mask & ~self._must)
                for j in self._order
                if not mask >> j & 1
            ]
            best, i, j = max(moves, default=(0, 0, 0))
            if best <= 0:
                return mask
            mask ^= 1 << i | 1 << j
            gains = [g - a + b for g, a, b in zip(gains, self._pair[i], self._pair[j], strict=True)]
