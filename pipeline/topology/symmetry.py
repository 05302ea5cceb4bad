"""Swaps of cards that change nothing: of two choices that one turns into the other, one will do."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.model.topology_tree import Group, Topology
from pipeline.topology.choice_ranking import Worth


@dataclass(frozen=True, slots=True)
class Swap:
    """Two sets of equally many places that can change places without any change of worth.

    Attributes:
        support: mask of the places that move.
        moves: (from, to) for the places that move to a lower one.
    """

    support: int
    moves: tuple[tuple[int, int], ...]


def swaps(topology: Topology, worth: Worth, must: int) -> list[list[int]]:
    """Return for each place the supports of the swaps that move it to a lower place.

    Found are swaps of cards, of neighbouring nodes of the tree and of NVLink groups, each cut down
    to the candidates; there may be others. A swap that would move a card of `must`, a mask of
    places, is none.
    """
    place = {card: n for n, card in enumerate(worth.cards)}
    found: list[list[int]] = [[] for _ in worth.cards]
    families: list[list[tuple[int, ...]]] = [[(n,) for n in range(len(worth.cards))]]
    groups: list[tuple[Group, ...]] = [*topology.levels.values(), topology.domains]
    seen: set[int] = set()
    for alike in groups:
        family = []
        for group in alike:
            block = tuple(place[card] for card in worth.cards if group.mask >> card & 1)
            if len(block) > 1 and group.mask not in seen:
                family.append(block)
            seen.add(group.mask)
        families.append(family)
    for family in families:
        for swap in _within(family, worth, must):
            for high, _ in swap.moves:
                found[high].append(swap.support)
    return found


def _within(family: list[tuple[int, ...]], worth: Worth, must: int) -> Iterable[Swap]:
    """Swap each block with the nearest one before it that it can be swapped with.

    The nearest is enough: with one further away it can then be swapped in steps.
    """
    for n, block in enumerate(family):
        for other in reversed(family[:n]):
            if len(other) != len(block):
                continue
            support = sum(1 << i for i in (*other, *block))
            if support & must == 0 and _changes_nothing(other, block, worth):
                # Blocks are disjoint and not always one behind the other.
                moves = tuple((max(i, j), min(i, j)) for i, j in zip(other, block, strict=True))
                yield Swap(support, moves)
                break


def _changes_nothing(one: tuple[int, ...], other: tuple[int, ...], worth: Worth) -> bool:
    if any(worth.card[i] != worth.card[j] for i, j in zip(one, other, strict=True)):
        return False
    to = list(range(len(worth.cards)))
    for i, j in zip(one, other, strict=True):
        to[i], to[j] = j, i
    for i in one:
        row, moved = worth.pair[i], worth.pair[to[i]]
        if any(value != moved[to[k]] for k, value in enumerate(row)):
            return False
    # Rows of the other block are the same equations, read the other way round.
    return True
