"""The selected GPUs are the best: a table of known machines, and comparison with full search."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Level, TopologyRead
from pipeline.model.bitmask import bits, mask_of
from pipeline.model.topology_tree import LEVELS, Link, Topology
from pipeline.topology.choice_ranking import link_score
from pipeline.topology.selection import ALWAYS_EXACT, best
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.exhaustive_search import Scores, exhaustive, rank
from tests.pipeline.topology.layouts import (
    PIX,
    PXB,
    SYS,
    card,
    dgx1,
    four_h100,
    hgx,
    islands,
    pcie,
    read,
    reads,
)
from tests.support.examples import examples


def selected(topology: Topology, candidates: Iterable[int], n: int, *must: int) -> list[int]:
    choice = best(topology, mask_of(candidates), n, must=mask_of(must))
    assert choice is not None
    assert choice.exact
    assert choice.cards == tuple(topology.cards[number] for number in bits(choice.mask))
    pairs = combinations(bits(choice.mask), 2)
    assert choice.score == sum(link_score(topology.links[pair]) for pair in pairs)
    return list(bits(choice.mask))


ALL = range(8)

Case = tuple[Callable[[], Topology], Iterable[int], int, tuple[int, ...], list[int], str]

TABLE: list[Case] = [
    (dgx1, ALL, 1, (), [0], "all equal: lowest number"),
    (dgx1, [1, 2, 3, 4, 5, 6, 7], 1, (), [1], "its partner behind the switch is taken"),
    (dgx1, ALL, 2, (), [2, 3], "two NVLinks and one switch"),
    (dgx1, [0, 1, 3, 4, 5, 7], 2, (), [0, 3], "two NVLinks and one host bridge"),
    (dgx1, ALL, 4, (), [0, 1, 2, 3], "a quad"),
    (dgx1, [1, 2, 3, 4, 5, 6, 7], 4, (), [4, 5, 6, 7], "the complete quad"),
    (dgx1, [0, 2, 4, 6], 2, (), [0, 4], "two NVLinks across sockets before one within a socket"),
    (dgx1, ALL, 2, (0,), [0, 3], "with 0: two NVLinks, same socket first"),
    (dgx1, ALL, 4, (5,), [4, 5, 6, 7], "the quad of 5"),
    (dgx1, ALL, 8, (), [0, 1, 2, 3, 4, 5, 6, 7], "all"),
    (hgx, ALL, 1, (), [0], "all equal: lowest number"),
    (hgx, [0, 1, 2, 4, 5, 6, 7], 1, (), [0], "from the incomplete socket"),
    (hgx, [0, 1, 2, 3, 4, 5, 7], 1, (), [4], "from the incomplete socket"),
    (hgx, ALL, 2, (), [0, 1], "one socket"),
    (
        hgx,
        [1, 2, 3, 4, 5, 6, 7],
        2,
        (),
        [1, 2],
        "from the incomplete socket, so that the other stays complete",
    ),
    (hgx, [1, 2, 3, 4, 5, 6, 7], 4, (), [4, 5, 6, 7], "one socket before two"),
    (hgx, [0, 4, 5, 6, 7], 2, (0,), [0, 4], "no other GPU left on the socket of 0"),
    (pcie, ALL, 1, (), [0], "all equal: lowest number"),
    (pcie, [0, 2, 3, 4, 5, 6, 7], 1, (), [0], "its partner is taken"),
    (pcie, [0, 1, 2, 3, 4, 5, 7], 1, (), [7], "its partner is taken"),
    (pcie, [1, 2, 4, 6, 7], 1, (), [1], "no partner, and fewer GPUs left on its socket"),
    (pcie, ALL, 2, (), [0, 1], "one switch"),
    (pcie, [1, 2, 3, 4, 5, 6, 7], 2, (), [2, 3], "one switch on the incomplete socket"),
    (pcie, [1, 2, 4, 7], 2, (), [1, 2], "no switch complete: one socket"),
    (pcie, ALL, 3, (), [0, 1, 2], "a switch, and one GPU of the same socket"),
    (pcie, [1, 2, 3, 4, 5, 6, 7], 3, (), [1, 2, 3], "the rest of the incomplete socket"),
    (pcie, ALL, 4, (2, 6), [2, 3, 6, 7], "two switches before one socket and a half"),
    (islands, ALL, 1, (), [0], "all equal: lowest number"),
    (islands, [1, 2, 3, 4, 5, 6, 7], 1, (), [2], "the incomplete island; 2 is as good as 4 or 6"),
    (islands, ALL, 2, (), [0, 2], "one island, and one socket"),
    (islands, ALL, 4, (), [0, 2, 4, 6], "an island, across the sockets"),
    (islands, [1, 2, 3, 4, 5, 6, 7], 2, (), [4, 6], "the incomplete island, and one socket"),
    (islands, [1, 2, 3, 4, 5, 6, 7], 3, (), [2, 4, 6], "the rest of the incomplete island"),
    (islands, ALL, 4, (3,), [1, 3, 5, 7], "the island of 3"),
    (four_h100, range(4), 1, (), [0], "all equal: lowest number"),
    (four_h100, range(4), 2, (), [0, 1], "all equal: lowest number"),
    (four_h100, range(4), 2, (3,), [0, 3], "all equal: lowest number with 3"),
    (four_h100, range(4), 4, (), [0, 1, 2, 3], "all"),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case[0].__name__}-{case[5]}")
def test_the_best_gpus_of_known_machines_are_selected(case: Case) -> None:
    layout, candidates, n, must, expected, reason = case
    assert selected(layout(), candidates, n, *must) == expected, reason


def scores(levels: Mapping[Level, int], nvlink: int) -> Scores:
    return lambda link: levels[link.level] + nvlink * (link.nvlinks or 0)


SCORES = st.just(link_score) | st.builds(
    scores,
    st.fixed_dictionaries({level: st.integers(-60, 60) for level in Level}),
    st.integers(-5, 100),
)


@settings(max_examples=examples(200), deadline=None)
@given(reads(at_most=8) | reads(at_most=8, sparse=True), st.data())
def test_the_choice_equals_that_of_exhaustive_search(
    answers: TopologyRead, data: st.DataObject
) -> None:
    topology = build(answers)
    masks = st.integers(0, topology.mask)
    candidates, must = data.draw(masks), data.draw(st.just(0) | masks)
    among = candidates | must
    if not among:
        return
    n = data.draw(st.integers(max(1, must.bit_count()), among.bit_count()))
    score_of = data.draw(SCORES)
    choice = best(topology, candidates, n, must=must, score_of=score_of)
    assert choice is not None
    assert choice.exact
    assert choice.mask == exhaustive(topology, among, n, must, score_of)


def regular(rng: Random) -> Topology:
    """Return a random regular machine: nested groups, NVLinks by a rule, some GPUs missing."""
    sizes = rng.choice([(2, 4, 8), (4, 8, 16), (2, 8, 16), (1, 4, 8), (3, 6, 12)])
    nvlink = rng.choice(["none", "pairs", "groups", "all", "cube", "shuffled"])
    places = rng.sample(range(16), rng.randint(9, 11))
    if nvlink != "shuffled":
        places.sort()

    def answer(i: int, j: int) -> tuple[Level, int, bool]:
        a, b = places[i], places[j]
        level = next(
            (lv for lv, size in zip(LEVELS[1:], sizes, strict=False) if a // size == b // size), SYS
        )
        links = {
            "none": 0,
            "pairs": 4 * (a // 2 == b // 2),
            "groups": 12 * (a % 2 == b % 2),
            "all": 18,
            "cube": 2 * ((a ^ b).bit_count() == 1),
            "shuffled": 6 * (a // 4 == b // 4),
        }[nvlink]
        return level, links, links > 0

    return build(read([card(n, links=None) for n in range(len(places))], answer))


@pytest.mark.parametrize("seed", range(40))
def test_symmetry_of_regular_machines_gives_the_exact_choice(seed: int) -> None:
    rng = Random(seed)
    topology = regular(rng)
    among = topology.mask & ~(1 << rng.randrange(9)) if seed % 2 else topology.mask
    must = mask_of(rng.sample(list(bits(among)), rng.choice([0, 0, 1, 2])))
    for n in range(max(1, must.bit_count()), among.bit_count() + 1):
        choice = best(topology, among, n, must=must)
        assert choice is not None
        assert choice.mask == exhaustive(topology, among, n, must, link_score), n


@pytest.mark.slow
@pytest.mark.parametrize("layout", [hgx, pcie])
def test_the_choice_of_eight_of_sixteen_gpus_is_exact(layout: Callable[[int], Topology]) -> None:
    topology = layout(16)
    choice = best(topology, topology.mask & ~0b10, 8)
    assert choice is not None
    assert choice.mask == exhaustive(topology, topology.mask & ~0b10, 8, 0, link_score)


def random_topology(count: int) -> Topology:
    """Return a topology with random links, which is the worst case for the search."""
    rng = Random(count)
    return build(
        read(
            [card(n, links=None) for n in range(count)],
            lambda _i, _j: (rng.choice([PIX, PXB, SYS]), rng.randrange(5), True),
        )
    )


@pytest.mark.slow
def test_the_choice_is_exact_for_sixteen_gpus_with_random_links() -> None:
    topology = random_topology(ALWAYS_EXACT)
    choice = best(topology, topology.mask, 6)
    assert choice is not None
    assert choice.exact
    assert choice.mask == exhaustive(topology, topology.mask, 6, 0, link_score)


@pytest.mark.slow
def test_a_choice_that_is_not_exact_says_so_and_no_single_exchange_improves_it() -> None:
    topology = random_topology(40)
    choice = best(topology, topology.mask, 12, must=0b1001)
    assert choice is not None
    assert not choice.exact
    assert "the best found" in choice.why
    assert choice.mask.bit_count() == 12
    assert choice.mask & 0b1001 == 0b1001
    chosen_rank = rank(topology, topology.mask, choice.mask, link_score)[:3]
    for i in bits(choice.mask & ~0b1001):
        for j in bits(topology.mask & ~choice.mask):
            assert (
                rank(topology, topology.mask, choice.mask ^ (1 << i | 1 << j), link_score)[:3]
                <= chosen_rank
            )


@cache
def of_64(layout: Callable[[int], Topology]) -> Topology:
    """Return a machine of 64 GPUs, which takes 50 ms to build."""
    return layout(64)


@pytest.mark.parametrize("layout", [hgx, pcie])
@pytest.mark.parametrize("n", [1, 2, 8, 31, 32, 63, 64])
def test_the_choice_is_exact_for_sixty_four_gpus_of_a_regular_machine(
    layout: Callable[[int], Topology], n: int
) -> None:
    topology = of_64(layout)
    choice = best(topology, topology.mask, n)
    assert choice is not None
    assert choice.exact
    assert choice.mask == (1 << n) - 1


def test_no_choice_if_there_are_too_few_gpus_or_too_many_are_required() -> None:
    topology = hgx()
    assert best(topology, 0b111, 4) is None
    assert best(topology, 0b111, 1, must=0b11) is None
    assert best(topology, 0, 1) is None
    choice = best(topology, 0b111, 4, must=0b1000)
    assert choice is not None
    assert choice.mask == 0b1111


@pytest.mark.parametrize(
    ("candidates", "n", "must"), [(1, 0, 0), (1, -1, 0), (256, 1, 0), (1, 1, 256), (-1, 1, 0)]
)
def test_invalid_arguments_are_refused(candidates: int, n: int, must: int) -> None:
    with pytest.raises(ValueError, match=r"GPUs"):
        best(hgx(), candidates, n, must=must)


def test_the_score_table_changes_the_choice() -> None:
    topology = islands()

    def pcie_first(link: Link) -> int:
        return link_score(Link(link.level, 0))

    choice = best(topology, topology.mask, 2, score_of=pcie_first)
    assert choice is not None
    assert (list(bits(choice.mask)), choice.score) == ([0, 1], 50)


def test_two_gpus_on_one_board_score_higher_than_two_behind_a_switch() -> None:
    answers = {(0, 1): PIX, (0, 2): PIX, (1, 2): Level.INTERNAL}
    topology = build(read([card(n) for n in range(3)], lambda i, j: (answers[i, j], 0, False)))
    choice = best(topology, topology.mask, 2)
    assert choice is not None
    assert (list(bits(choice.mask)), choice.score) == ([1, 2], 60)


@pytest.mark.parametrize(
    ("layout", "candidates", "n", "why"),
    [
        (
            dgx1,
            0xFF,
            4,
            (
                "link score 1120, the highest of 70 choices; "
                "pairs: 2 NV1+PHB, 2 NV2+PHB, 1 NV1+PIX, 1 NV2+PIX; leaves GPU 4-7"
            ),
        ),
        (
            pcie,
            0xFD,
            1,
            "taken from its PIX group of 2 GPUs, where 0 can still be chosen; leaves GPU 2-7",
        ),
        (
            four_h100,
            0x0F,
            1,
            "a GPU that is in no group smaller than the node; leaves GPU 1-3",
        ),
        (pcie, 0x11, 2, "the only choice; pairs: 1 SYS"),
    ],
)
def test_the_choice_has_an_explanation(
    layout: Callable[[], Topology], candidates: int, n: int, why: str
) -> None:
    choice = best(layout(), candidates, n)
    assert choice is not None
    assert choice.why == why


def test_an_nvlink_partner_outweighs_any_number_of_switch_partners() -> None:
    """Two and six GPUs with NVLink behind one switch, and three GPUs far from these."""
    island = [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2]

    def answer(i: int, j: int) -> tuple[Level, int, bool]:
        joined = island[i] == island[j]
        return (PIX if j < 8 else SYS), 4 * joined, joined

    topology = build(read([card(n, links=None) for n in range(11)], answer))
    assert selected(topology, range(11), 1) == [0]
