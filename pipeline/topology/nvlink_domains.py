"""NVLink domains: groups of GPUs that reach each other over NVLink."""

from collections.abc import Mapping

from pipeline.model import TopologyCard, TopologyPair
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import Domain, DomainKind


def usable(pair: TopologyPair) -> int | None:
    """Return how many NVLinks two GPUs can use between them; None if unknown.

    Links that the driver counts but does not let peers use do not count. Such links exist on a GPU
    in MIG mode, and while the fabric manager is down.
    """
    return 0 if pair.reachable is False else pair.nvlinks


def domains(
    cards: tuple[TopologyCard, ...], answers: Mapping[tuple[int, int], TopologyPair]
) -> tuple[Domain, ...]:
    """Return the groups of two or more GPUs; `answers` is by bit numbers (i, j), i < j."""
    classes = [1 << number for number in range(len(cards))]
    for (i, j), pair in answers.items():
        if _joined(cards[i], cards[j], pair, usable(pair)):
            join_classes(classes, i, j)
    groups = [mask for mask in dict.fromkeys(classes) if mask & (mask - 1)]
    kinds = [_kind(mask, cards, answers) for mask in groups]
    return tuple(
        Domain(kind, number, mask, fabric)
        for number, (mask, (kind, fabric)) in enumerate(zip(groups, kinds, strict=True))
    )


def join_classes(classes: list[int], i: int, j: int) -> None:
    """Merge the classes of two cards; `classes` has for each card the mask of its class."""
    if classes[i] != classes[j]:
        merged = classes[i] | classes[j]
        for number in bits(merged):
            classes[number] = merged


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
