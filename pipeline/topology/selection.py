"""Which GPUs to give to a pod."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Final

from pipeline.model import TopologyCard
from pipeline.model.bitmask import bits, mask_of
from pipeline.model.topology_tree import LEVELS, SYMBOLS, Link, Topology
from pipeline.topology.branch_and_bound import Search
from pipeline.topology.choice_ranking import worth
from pipeline.topology.link_scores import DEFAULT, Scores
from pipeline.topology.symmetry import swaps

ALWAYS_EXACT: Final = 16
"""With so many candidates or fewer a choice is exact, however long it takes."""

STEPS: Final = 5_000
"""How many branches a choice among more candidates may take."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The GPUs to take.

    Attributes:
        mask: by bit numbers in the topology.
        cards: the same, in the topology's order.
        score: the sum of the scores of their pairs; 0 for a single one.
        why: for people: what makes it the best.
        exact: no other choice is better. False only among more than `ALWAYS_EXACT` candidates,
            where the search gave up after `STEPS` branches, or where it was stopped: then it is the
            best that was seen.
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
    scores: Scores = DEFAULT,
    stop: Callable[[], bool] | None = None,
) -> Choice | None:
    """Choose the best `n` GPUs; `pipeline.topology.choice_ranking` says what is better than what.

    Args:
        topology: the node's.
        candidates: mask of the GPUs to choose from, such as `Availability.free`.
        n: how many, at least 1.
        must: mask of GPUs that have to be among them, candidates or not.
        scores: what a pair is worth.
        stop: asked again and again; once it returns True, the choice is the best seen so far.

    Returns:
        None if there are not so many candidates, or more than `n` that have to be among them.

    Raises:
        ValueError: `n` is less than 1, or a mask has bits that are no card's.
    """
    if n < 1:
        raise ValueError(f"can't choose {n} GPUs: ask for 1 or more")
    among = candidates | must
    if candidates < 0 or must < 0 or among & ~topology.mask:
        raise ValueError(f"there are {len(topology.cards)} GPUs, and no bits above theirs")
    if must.bit_count() > n or among.bit_count() < n:
        return None
    weighed = worth(topology, among, scores)
    kept = mask_of(place for place, card in enumerate(weighed.cards) if must >> card & 1)
    found = Search(
        weighed,
        n,
        must=kept,
        lower=swaps(topology, weighed, kept),
        limit=None if len(weighed.cards) <= ALWAYS_EXACT else STEPS,
        stop=stop,
    ).run()
    mask = mask_of(weighed.cards[place] for place in bits(found.mask))
    score = link_score(topology, mask, scores)
    choices = comb(among.bit_count() - must.bit_count(), n - must.bit_count())
    return Choice(
        mask,
        tuple(topology.cards[number] for number in bits(mask)),
        score,
        _why(topology, mask, among, score, choices, exact=found.exact),
        found.exact,
    )


def link_score(topology: Topology, mask: int, scores: Scores = DEFAULT) -> int:
    """Return the sum of the scores of all pairs of these cards."""
    return sum(scores.of(link) for link in _links(topology, mask))


def _links(topology: Topology, mask: int) -> list[Link]:
    members = list(bits(mask))
    return [topology.links[i, j] for n, j in enumerate(members) for i in members[:n]]


def _why(
    topology: Topology, mask: int, among: int, score: int, choices: int, *, exact: bool
) -> str:
    rest = among & ~mask
    if choices == 1:
        told = ["the only choice"]
    elif mask.bit_count() == 1:
        told = [_least_left(topology, mask, among)]
    else:
        word = "the highest" if exact else "the best seen"
        told = [f"link score {score}, {word} of {choices} choices"]
    if mask.bit_count() > 1:
        told.append(_pairs(topology, mask))
    if rest:
        told.append(f"leaves {topology.names(rest)}")
    return "; ".join(told)


def _pairs(topology: Topology, mask: int) -> str:
    kinds = Counter(_symbol(link) for link in _links(topology, mask))
    return "pairs: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _symbol(link: Link) -> str:
    level = SYMBOLS[link.level]
    return f"NV{link.nvlinks}+{level}" if link.nvlinks else level


def _least_left(topology: Topology, mask: int, among: int) -> str:
    """Say in which group the card is that has least left."""
    groups = [("NVLink group", domain.mask) for domain in topology.domains]
    groups += [
        (f"{SYMBOLS[level]} group", node.mask)
        for level in LEVELS
        for node in topology.levels[level]
    ]
    for kind, group in groups:
        if group & mask and group & (group - 1) and group != topology.mask:
            left, size = (group & among & ~mask).bit_count(), group.bit_count()
            return f"taken from its {kind} of {size}, of which it leaves {left}"
    return "no group has less left"
