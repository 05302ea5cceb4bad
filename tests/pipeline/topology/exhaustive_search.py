"""The best choice of GPUs by trying all, with the ranking that the documentation defines."""

from collections.abc import Callable
from itertools import combinations

from pipeline.model.bitmask import bits, mask_of
from pipeline.model.topology_tree import LEVELS, Group, Link, Topology

Scores = Callable[[Link], int]


def rank(
    topology: Topology, among: int, mask: int, score_of: Scores
) -> tuple[int, list[int], int, list[int]]:
    """Return the rank of a choice as the documentation defines it. A higher rank is better."""
    rest = among & ~mask
    groups: list[tuple[Group, ...]] = [topology.domains]
    groups += [topology.levels[level] for level in LEVELS[:-1]]

    def pairs(count: int) -> int:
        return count * (count - 1) // 2

    def score(of: int) -> int:
        return sum(score_of(topology.links[i, j]) for i, j in combinations(bits(of), 2))

    left = [sum(pairs((group.mask & rest).bit_count()) for group in kind) for kind in groups]
    return score(mask), left, score(rest), [-number for number in bits(mask)]


def exhaustive(topology: Topology, among: int, n: int, must: int, score_of: Scores) -> int:
    free = bits(among & ~must)
    return max(
        (must | mask_of(more) for more in combinations(free, n - must.bit_count())),
        key=lambda mask: rank(topology, among, mask, score_of),
    )
