"""Types of a topology: tree of PCIe levels, NVLink domains, links between pairs of GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from pipeline.model.bitmask import bits, ranges
from pipeline.model.events import TopologyRead
from pipeline.model.topology_facts import Level, TopologyCard, TopologyPair

LEVELS: Final = (Level.SINGLE, Level.MULTIPLE, Level.HOSTBRIDGE, Level.NODE, Level.SYSTEM)
"""Levels of the tree, closest first. Two GPUs on one board count as behind one switch."""

SYMBOLS: Final[Mapping[Level, str]] = {
    Level.INTERNAL: "PIX",
    Level.SINGLE: "PIX",
    Level.MULTIPLE: "PXB",
    Level.HOSTBRIDGE: "PHB",
    Level.NODE: "NODE",
    Level.SYSTEM: "SYS",
}
"""What `nvidia-smi topo -m` prints for each level."""

DomainKind: TypeAlias = Literal["direct", "switch", "fabric"]


class Link(NamedTuple):
    """How close two GPUs are.

    Attributes:
        level: INTERNAL where the driver reports it, else the level of their lowest common node.
        nvlinks: NVLinks that can be used between them; None when unknown.
    """

    level: Level
    nvlinks: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A group of GPUs that are at one level or closer to each other.

    Attributes:
        level: the level.
        number: position among the nodes of its level, which are sorted by their lowest card.
        mask: mask of its GPUs, at least one.
        children: the nodes of the next closer level that it consists of; none at level SINGLE.
    """

    level: Level
    number: int
    mask: int
    children: tuple["Node", ...] = ()

    @property
    def folded(self) -> "Node":
        """The node of the closest level with the same GPUs. It replaces a chain of such nodes."""
        node = self
        while len(node.children) == 1:
            node = node.children[0]
        return node

    @property
    def branches(self) -> tuple["Node", ...]:
        """The folded children; empty for a node of level SINGLE, which has cards below it."""
        return tuple(child.folded for child in self.folded.children)


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A group of GPUs that reach each other over NVLink, directly or through other GPUs.

    Attributes:
        kind: `fabric` if all are in one clique of a fabric with a name, `switch` if NVSwitches
            connect them, `direct` if their links connect them to each other.
        number: position among the domains, which are sorted by their lowest card.
        mask: mask of its GPUs, at least two.
        fabric: `cluster/clique` for a fabric, else empty.
    """

    kind: DomainKind
    number: int
    mask: int
    fabric: str = ""


Group: TypeAlias = Node | Domain
"""A group of cards: a node of the tree or an NVLink domain."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Topology:
    """A node's GPUs and their connections; the same object as long as nothing in it changes.

    Attributes:
        read: the report that it was built from, sorted: cards as in `cards`, `a` of each pair
            before `b`, each pair once.
        levels: the nodes of each level of `LEVELS`. Each card is in exactly one node of a level.
            Empty without cards.
        domains: NVLink groups; no card is in two of them.
        contradictions: pairs of GPUs, by uuid, that the driver reports further apart than its other
            answers allow, each with a text for people: which answers contradict each other.
        links: how close two cards are, by bit numbers (i, j), i < j.
        answers: the driver's answers by bit numbers (i, j), i < j; without pairs that it left out.
    """

    read: TopologyRead
    levels: Mapping[Level, tuple[Node, ...]]
    domains: tuple[Domain, ...]
    contradictions: Mapping[tuple[str, ...], str]
    links: Mapping[tuple[int, int], Link]
    answers: Mapping[tuple[int, int], TopologyPair]

    @property
    def cards(self) -> tuple[TopologyCard, ...]:
        """The GPUs, sorted by index, then by uuid; GPUs without an index are last.

        The position of a GPU is its bit number in masks.
        """
        return self.read.cards

    @property
    def mask(self) -> int:
        """Mask of all cards."""
        return (1 << len(self.cards)) - 1

    @property
    def root(self) -> Node | None:
        """The top of the folded tree; None without cards."""
        tops = self.levels.get(Level.SYSTEM, ())
        return tops[0].folded if tops else None

    def name(self, number: int) -> str:
        """Return a card's name for people: `GPU` and its index, or its uuid without an index."""
        card = self.cards[number]
        return card.uuid if card.index is None else f"GPU{card.index}"

    def names(self, mask: int) -> str:
        """Return the names of cards for people, in short form: `GPU 0-3,6`."""
        cards = [self.cards[number] for number in bits(mask)]
        listed = [ranges(card.index for card in cards if card.index is not None)]
        listed = [f"GPU {listed[0]}"] if listed[0] else []
        return ", ".join(listed + [card.uuid for card in cards if card.index is None])
