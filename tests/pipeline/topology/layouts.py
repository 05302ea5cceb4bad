"""Machines to test with, written out as their drivers tell of them."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from pipeline.model import Level, TopologyCard, TopologyPair, TopologyRead
from pipeline.model.topology_tree import Topology
from pipeline.topology import build
from tests.support.nodes import uuid_of

PIX, PXB, PHB, NODE, SYS = (Level(number) for number in (10, 20, 30, 40, 50))

Reported = tuple[Level | None, int | None, bool | None]


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


def read(cards: Sequence[TopologyCard], given_out: Callable[[int, int], Reported]) -> TopologyRead:
    return TopologyRead(
        tuple(cards),
        tuple(
            TopologyPair(cards[i].uuid, cards[j].uuid, *given_out(i, j))
            for j in range(len(cards))
            for i in range(j)
        ),
    )


def sockets(i: int, j: int, *, size: int = 4) -> Level:
    """Pairs behind a switch, `size` GPUs on each socket."""
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
"""NVLinks of a DGX-1 with V100s: six of each GPU, none to a switch."""


def dgx1() -> Topology:
    """Hybrid cube mesh: two quads on two sockets, pairs behind PCIe switches."""

    def given_out(i: int, j: int) -> Reported:
        level = PIX if i // 2 == j // 2 else PHB if i // 4 == j // 4 else SYS
        return level, CUBE[i][j], CUBE[i][j] > 0

    return build(read([card(i, links=6, numa=i // 4) for i in range(8)], given_out))


def hgx(count: int = 8) -> Topology:
    """All GPUs on NVSwitches, each with 18 links; a clique, but the fabric has no name."""
    cards = [card(i, links=18, clique=0, numa=i // 4) for i in range(count)]
    return build(read(cards, lambda i, j: (NODE if i // 4 == j // 4 else SYS, 18, True)))


def pcie(count: int = 8) -> Topology:
    """PCIe alone, two sockets, pairs behind switches."""
    half = count // 2
    cards = [card(i, numa=i // half) for i in range(count)]
    return build(read(cards, lambda i, j: (sockets(i, j, size=half), 0, False)))


def islands() -> Topology:
    """Two islands of four, all joined within, which are not those of the sockets: odd and even."""
    cards = [card(i, links=12, numa=i // 4) for i in range(8)]
    return build(
        read(cards, lambda i, j: (sockets(i, j), 4 * (i % 2 == j % 2), i % 2 == j % 2)),
    )


def four_h100() -> Topology:
    """Four H100s of a virtual machine, on NVSwitches: what their driver answered."""
    cards = [
        TopologyCard(uuid_of(n), n, f"00000000:00:{6 + n:02X}.0", None, (), 18, "", 0)
        for n in range(4)
    ]
    return build(read(cards, lambda _i, _j: (PHB, 18, True)))


@st.composite
def reads(
    draw: st.DrawFn, *, at_most: int = 8, sparse: bool = False, answered: bool = False
) -> TopologyRead:
    """Whatever a driver may say, contradictions and all."""
    count = draw(st.integers(1, at_most))
    levels = st.sampled_from([SYS] * 6 + [*Level] if sparse else [*Level])
    level = levels if answered else st.none() | levels
    nvlinks = st.none() | st.sampled_from([0, 0, 0, 1, 2, 4])
    reachable = st.sampled_from([None, True, True, False])
    cards = [
        card(
            n,
            links=draw(st.sampled_from([None, 0, 4, 18])),
            cluster=draw(st.sampled_from(["", "c1", "c2"])),
            clique=draw(st.sampled_from([None, 0, 1])),
        )
        for n in range(count)
    ]
    return read(cards, lambda _i, _j: (draw(level), draw(nvlinks), draw(reachable)))
