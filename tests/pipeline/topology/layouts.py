"""Topologies of known machines, as their drivers report them, and random ones."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

from hypothesis import strategies as st

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.topology_tree import Topology
from pipeline.topology.tree_builder import build
from tests.support.nodes import uuid_of

PIX, PXB, PHB, NODE, SYS = (Level(number) for number in (10, 20, 30, 40, 50))

PairAnswer = tuple[Level | None, int | None, bool | None]


def card(
    number: int,
    *,
    links: int | None = 0,
    cluster: str = "",
    clique: int | None = None,
    numa: int | None = None,
) -> TopologyCard:
    bus = f"00000000:{number + 1:02X}:00.0"
    return TopologyCard(uuid_of(number), number, bus, numa, (), links, cluster, clique)


def read(cards: Sequence[TopologyCard], answer: Callable[[int, int], PairAnswer]) -> TopologyRead:
    return TopologyRead(
        tuple(cards),
        tuple(
            TopologyPair(cards[i].uuid, cards[j].uuid, *answer(i, j))
            for j in range(len(cards))
            for i in range(j)
        ),
    )


def sockets(i: int, j: int, *, size: int = 4) -> Level:
    """Return the level of two GPUs: pairs share a switch, and `size` GPUs share a socket."""
    if i // 2 == j // 2:
        return PIX
    return NODE if i // size == j // size else SYS


CUBE = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
]
"""NVLinks of a DGX-1 with V100s: each GPU has six, all to other GPUs."""


def dgx1() -> Topology:
    """Return a hybrid cube mesh: two quads on two sockets, pairs behind PCIe switches."""

    def answer(i: int, j: int) -> PairAnswer:
        level = PIX if i // 2 == j // 2 else PHB if i // 4 == j // 4 else SYS
        return level, CUBE[i][j], CUBE[i][j] > 0

    return build(read([card(i, links=6, numa=i // 4) for i in range(8)], answer))


def hgx(count: int = 8) -> Topology:
    """Return GPUs on NVSwitches with 18 links each, in one clique of a fabric without name."""
    cards = [card(i, links=18, clique=0, numa=i // 4) for i in range(count)]
    return build(read(cards, lambda i, j: (NODE if i // 4 == j // 4 else SYS, 18, True)))


def pcie(count: int = 8) -> Topology:
    """Return GPUs without NVLink on two sockets, pairs behind PCIe switches."""
    half = count // 2
    cards = [card(i, numa=i // half) for i in range(count)]
    return build(read(cards, lambda i, j: (sockets(i, j, size=half), 0, False)))


def islands() -> Topology:
    """Return two NVLink domains of four GPUs, odd and even, across the two sockets."""
    cards = [card(i, links=12, numa=i // 4) for i in range(8)]
    return build(
        read(cards, lambda i, j: (sockets(i, j), 4 * (i % 2 == j % 2), i % 2 == j % 2)),
    )


def four_h100() -> Topology:
    """Return four H100s of a virtual machine on NVSwitches, as their driver reported them."""
    cards = [
        TopologyCard(uuid_of(n), n, f"00000000:00:{6 + n:02X}.0", None, (), 18, "", 0)
        for n in range(4)
    ]
    return build(read(cards, lambda _i, _j: (PHB, 18, True)))


@cache
def _answers(*, sparse: bool, answered: bool) -> list[PairAnswer]:
    """Return the answers for one pair; one draw of these is faster than a draw of each part."""
    levels: list[Level | None] = [SYS] * 6 + [*Level] if sparse else [*Level]
    if not answered:
        levels += [None] * len(levels)
    return list(product(levels, [None] * 6 + [0, 0, 0, 1, 2, 4], [None, True, True, False]))


@st.composite
def reads(
    draw: st.DrawFn, *, at_most: int = 8, sparse: bool = False, answered: bool = False
) -> TopologyRead:
    """Draw any answers of a driver, also contradictory ones."""
    count = draw(st.integers(1, at_most))
    cards = [
        card(
            n,
            links=draw(st.sampled_from([None, 0, 4, 18])),
            cluster=draw(st.sampled_from(["", "c1", "c2"])),
            clique=draw(st.sampled_from([None, 0, 1])),
        )
        for n in range(count)
    ]
    pairs = count * (count - 1) // 2
    answers = st.sampled_from(_answers(sparse=sparse, answered=answered))
    drawn = iter(draw(st.lists(answers, min_size=pairs, max_size=pairs)))
    return read(cards, lambda _i, _j: next(drawn))
