"""NVLink domains: groups of GPUs that reach each other over NVLink."""

from collections.abc import Mapping

from pipeline.model import TopologyCard, TopologyPair
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import Domain, DomainKind
from pipeline.topology.equivalence_classes import classes


def usable(pair: TopologyPair) -> int | None:
    """Return how many NVLinks two GPUs can use between them; None if unknown.

    Links that the driver counts but does not let peers use do not count. This happens for a GPU in
    MIG mode, and while the fabric manager is down.
    """
    return 0 if pair.reachable is False else pair.nvlinks


def domains(
    cards: tuple[TopologyCard, ...], answers: Mapping[tuple[int, int], TopologyPair]
) -> tuple[Domain, ...]:
    """Return the groups of two or more GPUs; `answers` is by bit numbers (i, j), i < j."""
    joined = [
        (i, j)
        for (i, j), pair in answers.items()
        if _joined(cards[i], cards[j], pair, usable(pair))
    ]
    groups = [mask for mask in classes(len(cards), joined) if mask & (mask - 1)]
    result = []
    for number, mask in enumerate(groups):
        kind, fabric = _kind(mask, cards, answers)
        result.append(Domain(kind, number, mask, fabric))
    return tuple(result)


def _joined(a: TopologyCard, b: TopologyCard, pair: TopologyPair, nvlinks: int | None) -> bool:
    if nvlinks is not None:
        return nvlinks > 0
    if pair.reachable:
        return True
    fabric = _fabric(a)
    return fabric != "" and fabric == _fabric(b) and a.links != 0 and b.links != 0


def _kind(
    mask: int, cards: tuple[TopologyCard, ...], answers: Mapping[tuple[int, int], TopologyPair]
) -> tuple[DomainKind, str]:
    members = list(bits(mask))
    fabrics = {_fabric(cards[i]) for i in members}
    if len(fabrics) == 1 and "" not in fabrics:
        return "fabric", fabrics.pop()
    # Without switches no GPU has a clique, and a GPU's links to its peers do not exceed its links.
    if all(cards[i].clique is not None for i in members):
        return "switch", ""
    for i in members:
        pairs = (answers.get((min(i, j), max(i, j))) for j in members if j != i)
        total = sum((usable(pair) or 0) for pair in pairs if pair is not None)
        links = cards[i].links
        if links is not None and total > links:
            return "switch", ""
    return "direct", ""


def _fabric(card: TopologyCard) -> str:
    """Return the name of a card's clique; empty without one, or within a single machine."""
    if card.clique is None or not card.cluster.strip("0-"):
        return ""
    return f"{card.cluster}/{card.clique}"
