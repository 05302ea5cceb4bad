"""Swaps: exchanges of cards that do not change any worth. Of two equal choices one is enough."""

from pipeline.model.topology_tree import Group, Topology
from pipeline.topology.choice_ranking import Worth


def swaps(topology: Topology, worth: Worth, must: int) -> list[list[int]]:
    """Return the swaps that exchange each place for a lower one, as masks of the places that move.

    A place is the position of a card among the candidates. This finds swaps of cards, of
    neighbouring nodes of the tree and of NVLink groups, each reduced to the candidates; there may
    be other swaps. Swaps that move a place of the mask `must` are excluded.
    """
    place = {card: n for n, card in enumerate(worth.cards)}
    found: list[list[int]] = [[] for _ in worth.cards]
    families: list[list[tuple[int, ...]]] = [[(n,) for n in range(len(worth.cards))]]
    groups: list[tuple[Group, ...]] = [*topology.levels.values(), topology.domains]
    seen: set[int] = set()
    for family_groups in groups:
        family = []
        for group in family_groups:
            block = tuple(place[card] for card in worth.cards if group.mask >> card & 1)
            if len(block) > 1 and group.mask not in seen:
                family.append(block)
            seen.add(group.mask)
        families.append(family)
    for family in families:
        for n, block in enumerate(family):
            # Swaps with more distant blocks result from several swaps with the nearest one.
            for other in reversed(family[:n]):
                support = sum(1 << i for i in (*other, *block))
                if support & must == 0 and _changes_nothing(other, block, worth):
                    # Blocks are disjoint, but one need not lie completely after the other.
                    for i, j in zip(other, block, strict=True):
                        found[max(i, j)].append(support)
                    break
    return found


def _changes_nothing(one: tuple[int, ...], other: tuple[int, ...], worth: Worth) -> bool:
    """Whether two blocks can be exchanged without a change of any worth."""
    if len(one) != len(other):
        return False
    if any(worth.card[i] != worth.card[j] for i, j in zip(one, other, strict=True)):
        return False
    to = list(range(len(worth.cards)))
    for i, j in zip(one, other, strict=True):
        to[i], to[j] = j, i
    for i in one:
        row, moved = worth.pair[i], worth.pair[to[i]]
        if any(value != moved[to[k]] for k, value in enumerate(row)):
            return False
    # The rows of the other block give the same equations.
    return True
