"""The best choice of N places, by branch and bound.

Choices are gone through in the order of their places, lowest first, so that the first of equals is
the one with the lowest cards. A branch is cut when

* not even the bound of what it can come to is better than the best found so far: for each place its
  worth beside those chosen, and half of its best pairs with those that may still be chosen;
* a swap that moves none of the chosen moves its place to a lower one. Every choice with that lower
  place in it has been gone through before, or was cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipeline.model.bitmask import bits
from pipeline.topology.choice_ranking import Worth


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to.

    Attributes:
        mask: of the places chosen.
        exact: nothing is better; else the search ran out of steps, and this is the best it saw:
            no worse than taking one place after another, whichever is first, and no exchange of
            one place for another would make it better.
        steps: how many branches it looked at.
    """

    mask: int
    exact: bool
    steps: int


class Search:
    """One search for the best `n` places."""

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
        """Get ready.

        Args:
            worth: of the choices.
            n: how many places to choose, those of `must` included; no more than there are.
            must: mask of places that are in every choice.
            lower: for each place the supports of the swaps that move it to a lower one.
            limit: how many branches to look at at most; None for all that it takes.
            stop: asked at each branch; True ends the search as the limit does.
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
        # By position in the order: for each place from there on the sums of its best pairs with
        # these, for every number of pairs.
        self._sums: dict[int, list[list[int]]] = {}

    def run(self) -> SearchResult:
        """Search."""
        kept = list(bits(self._must))
        start = self._worth.of(kept)
        gains = self._beside(self._must)
        self._best = self._guess(gains)
        self._mark = self._worth.of(list(bits(self._best)))
        self._branch(0, self._must, start, [gains[i] for i in self._order], self._open)
        if self._stopped:
            self._best = self._exchanged(self._best, self._beside(self._best))
        return SearchResult(self._best, not self._stopped, self._steps)

    def _beside(self, mask: int) -> list[int]:
        """Return what each place adds to these, or has added if it is one of them."""
        chosen = list(bits(mask))
        return [
            card + sum(row[j] for j in chosen)
            for card, row in zip(self._worth.card, self._pair, strict=True)
        ]

    def _branch(self, at: int, chosen: int, value: int, gains: list[int], left: int) -> None:
        """Go through the choices of `left` more places from position `at` of the order on.

        Args:
            at: position in the order.
            chosen: mask of the places chosen so far.
            value: their worth.
            gains: from `at` on, what each place adds to it.
            left: how many to choose, at least one unless nothing was open from the start.
        """
        if left == 0:
            self._take(chosen, value)
            return
        order, lower = self._order, self._lower
        last = len(order) - left
        while at <= last:
            if self._stopped or self._cut(at, value, gains, left):
                return
            place, gain, gains = order[at], gains[0], gains[1:]
            at += 1
            if any(support & chosen == 0 for support in lower[place]):
                continue
            self._steps += 1
            if (self._limit is not None and self._steps > self._limit) or (
                self._stop is not None and self._stop()
            ):
                self._stopped = True
                return
            if left == 1:
                self._take(chosen | 1 << place, value + gain)
                continue
            row = self._pair[place]
            further = [g + row[j] for g, j in zip(gains, order[at:], strict=True)]
            self._branch(at, chosen | 1 << place, value + gain, further, left - 1)

    def _take(self, chosen: int, value: int) -> None:
        # The guess is no more than a mark: one that is as good comes first in the order.
        if value > self._mark or (value == self._mark and not self._proven):
            self._best, self._mark, self._proven = chosen, value, True

    def _cut(self, at: int, value: int, gains: list[int], left: int) -> bool:
        sums = self._sums.get(at)
        if sums is None:
            sums = self._sums[at] = self._pairs_from(at)
        most = sorted(
            [2 * gain + best[left - 1] for gain, best in zip(gains, sums, strict=True)],
            reverse=True,
        )
        bound = 2 * value + sum(most[:left])
        mark = 2 * self._mark
        return bound < mark or (bound == mark and self._proven)

    def _pairs_from(self, at: int) -> list[list[int]]:
        rest = self._order[at:]
        sums = []
        for i in rest:
            row = self._pair[i]
            best = sorted([row[j] for j in rest if j != i], reverse=True)[: self._open]
            sums.append([0, *accumulate(best)])
        return sums

    def _guess(self, gains: list[int]) -> int:
        """Return a good choice: greedily from each place, then by exchanges while they help."""
        greedy = [self._greedy(first, gains) for first in self._order if self._open]
        if not greedy:
            return self._must
        _, mask, beside = max(greedy, key=lambda choice: choice[0])
        return self._exchanged(mask, beside)

    def _greedy(self, first: int, gains: list[int]) -> tuple[int, int, list[int]]:
        """Return what `first` and the best place after each adds, the choice, and gains beside."""
        mask, value, place = self._must, 0, first
        for n in range(self._open):
            mask |= 1 << place
            value += gains[place]
            gains = [g + w for g, w in zip(gains, self._pair[place], strict=True)]
            if n + 1 < self._open:
                place = max((i for i in self._order if not mask >> i & 1), key=gains.__getitem__)
        return value, mask, gains

    def _exchanged(self, mask: int, gains: list[int]) -> int:
        """Exchange one place for another while it helps; `gains` are beside all of `mask`."""
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
