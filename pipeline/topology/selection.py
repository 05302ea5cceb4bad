"""Selection of the best GPUs for a pod."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Final

from pipeline.model import TopologyCard
from pipeline.model.bitmask import bits, mask_of
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Link, Topology
from pipeline.topology.branch_and_bound import Search
from pipeline.topology.choice_ranking import link_score, worth
from pipeline.topology.symmetry import swaps

ALWAYS_EXACT: Final = 16
"""Up to this number of candidates the search has no limit on branches."""

STEPS: Final = 5_000
"""Limit on the branches of a search among more candidates."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen GPUs.

    Attributes:
        mask: mask of the GPUs, by bit numbers in the topology.
        cards: the GPUs, in the topology's order.
        score: the sum of the scores of their pairs; 0 for a single GPU.
        why: a text for people that says why this choice is the best.
        exact: whether no other choice is better. It may be False among more than `ALWAYS_EXACT`
            candidates, if the search ended after `STEPS` branches, and if the search was stopped.
            Then this is the best choice that was found.
    """

    mask: int
    cards: tuple[TopologyCard, ...]
    score: int
    why: str
    exact: bool = True


def best(
    topology: Topology,
    candidates: int,
    n: int,
    *,
    must: int = 0,
    score_of: Callable[[Link], int] = link_score,
    stop: Callable[[], bool] | None = None,
) -> Choice | None:
    """Choose the best `n` GPUs, by the ranking of `pipeline.topology.choice_ranking`.

    Args:
        topology: the topology of the node.
        candidates: mask of the GPUs to choose from, such as `Availability.free`.
        n: number of GPUs to choose, including those of `must`; at least 1.
        must: mask of GPUs that must be chosen, whether they are candidates or not.
        score_of: returns the score of a pair.
        stop: called at each branch of the search; if it returns True, the search ends and the
            choice is the best one found so far.

    Returns:
        None if there are fewer candidates than `n`, or if `must` has more GPUs than `n`.

    Raises:
        ValueError: `n` is less than 1, or a mask is negative or has bits that belong to no card.
    """
    if n < 1:
        raise ValueError(f"cannot choose {n} GPUs: n must be 1 or more")
    among = candidates | must
    if candidates < 0 or must < 0 or among & ~topology.mask:
        raise ValueError(
            "a mask is negative, or names GPUs that do not exist: there are "
            f"{len(topology.cards)} GPUs"
        )
    if must.bit_count() > n or among.bit_count() < n:
        return None
    worths = worth(topology, among, score_of)
    must_places = mask_of(place for place, card in enumerate(worths.cards) if must >> card & 1)
    places, exact = Search(
        worths,
        n,
        must=must_places,
        lower=swaps(topology, worths, must_places),
        limit=None if len(worths.cards) <= ALWAYS_EXACT else STEPS,
        stop=stop,
    ).run()
    mask = mask_of(worths.cards[place] for place in bits(places))
    score = sum(map(score_of, _links(topology, mask)))
    choices = comb(among.bit_count() - must.bit_count(), n - must.bit_count())
    return Choice(
        mask,
        tuple(topology.cards[number] for number in bits(mask)),
        score,
        _why(topology, mask, among, score, choices, exact=exact),
        exact,
    )


def _links(topology: Topology, mask: int) -> list[Link]:
    members = list(bits(mask))
    return [topology.links[i, j] for n, j in enumerate(members) for i in members[:n]]


def _why(
    topology: Topology, mask: int, among: int, score: int, choices: int, *, exact: bool
) -> str:
    remaining = among & ~mask
    if choices == 1:
        reasons = ["the only choice"]
    elif mask.bit_count() == 1:
        reasons = [_least_left(topology, mask, among)]
    else:
        quality = "the highest" if exact else "the best found"
        reasons = [f"link score {score}, {quality} of {choices} choices"]
    if mask.bit_count() > 1:
        reasons.append(_pairs(topology, mask))
    if remaining:
        reasons.append(f"leaves {topology.names(remaining)}")
    return "; ".join(reasons)


def _pairs(topology: Topology, mask: int) -> str:
    kinds = Counter(_symbol(link) for link in _links(topology, mask))
    return "pairs: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _symbol(link: Link) -> str:
    level = SYMBOLS[link.level]
    return f"NV{link.nvlinks}+{level}" if link.nvlinks else level


def _least_left(topology: Topology, mask: int, among: int) -> str:
    """Return the group that the single card is taken from: the closest one that it has."""
    groups = [("NVLink group", domain.mask) for domain in topology.domains]
    groups += [
        (f"{SYMBOLS[level]} group", node.mask)
        for level in LEVELS
        for node in topology.levels[level]
    ]
    for kind, group in groups:
        if group & mask and group & (group - 1) and group != topology.mask:
            remaining, size = (group & among & ~mask).bit_count(), group.bit_count()
            return f"taken from its {kind} of {size} GPUs, where {remaining} can still be chosen"
    return "a GPU that is in no group smaller than the node"
