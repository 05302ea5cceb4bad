"""Topology tree, availability and best choice, compared with simple implementations."""

import time
from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest

from pipeline.model import Attribution, Evidence, Holder, PartialRef
from pipeline.model.availability import availability
from pipeline.model.bitmask import bits
from pipeline.model.topology_tree import Topology
from pipeline.topology.choice_ranking import link_score
from pipeline.topology.selection import best
from pipeline.topology.tree_builder import build
from tests.pipeline.topology.layouts import NODE, PIX, PXB, SYS, card, hgx, pcie, read
from tests.support.nodes import START, gpu

COUNTS = (4, 8, 16, 32, 64)


def spent(work: Callable[[], object], times: int = 5) -> float:
    """Return the shortest time of some runs, in milliseconds."""
    least = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
    return 1e3 * least


def noise(count: int) -> Topology:
    """Return a topology with random links, without any symmetry."""
    random = Random(count)
    return build(
        read(
            [card(n, links=None) for n in range(count)],
            lambda _i, _j: (random.choice([PIX, PXB, NODE, SYS]), random.randrange(5), True),
        )
    )


def enumerated(topology: Topology, n: int) -> int:
    """Return the best score by enumeration of all sets, without regard for the remaining GPUs."""
    score = {key: link_score(link) for key, link in topology.links.items()}
    sets = combinations(range(len(topology.cards)), n)
    return max(sum(score[pair] for pair in combinations(chosen, 2)) for chosen in sets)


@pytest.mark.parametrize(("n", "at_most"), [(4, 1.0), (8, 0.2)])
def test_the_best_choice_of_sixteen_gpus_against_enumeration(n: int, at_most: float) -> None:
    print(f"\nbest {n} of 16      ms   plain enumeration, ms   ratio")
    for layout in (hgx, pcie, noise):
        topology = layout(16)
        plain = spent(lambda: enumerated(topology, n), 1)  # noqa: B023
        ours = spent(lambda: best(topology, topology.mask, n))  # noqa: B023
        choice = best(topology, topology.mask, n)
        assert choice is not None
        assert choice.score == enumerated(topology, n)
        print(f"{layout.__name__:12} {ours:8.2f} {plain:23.2f} {ours / plain:7.3f}")
        assert ours / plain < at_most


def test_the_tree_against_the_transitive_closure() -> None:
    """Compare with only the transitive closure by the Floyd-Warshall algorithm."""
    print("\nGPUs   tree, ms   only closure, ms   ratio")
    for count in COUNTS:
        topology = pcie(count)
        ours = spent(lambda: build(topology.read))  # noqa: B023
        plain = spent(lambda: closed(topology), 1)  # noqa: B023
        print(f"{count:4} {ours:10.2f} {plain:19.2f} {ours / plain:7.2f}")
        assert ours / plain < 3


def closed(topology: Topology) -> list[list[int]]:
    count = range(len(topology.cards))
    far: list[list[int]] = [
        [0 if i == j else int(topology.links[min(i, j), max(i, j)].level) for j in count]
        for i in count
    ]
    for k in count:
        for row in far:
            row[:] = [min(now, max(row[k], via)) for now, via in zip(row, far[k], strict=True)]
    return far


def test_an_update_of_availability_against_a_full_calculation() -> None:
    """One GPU changes its holder: compare with calculating everything again."""
    print("\nGPUs   update, ms   full, ms   ratio")
    holder = Holder(PartialRef("ml", "pod", "main"), 1, START, "kubelet", Evidence.KUBELET_IDS)
    for count in COUNTS:
        topology = hgx(count)
        before = {gpu(n).uuid: Attribution(gpu(n), True, ()) for n in range(count)}
        after = {**before, gpu(1).uuid: Attribution(gpu(1), True, (holder,))}
        known = availability(topology, before)
        assert list(bits(known.free ^ availability(topology, after, known).free)) == [1]
        ours = spent(lambda: availability(topology, after, known), 50)  # noqa: B023
        again = spent(lambda: availability(topology, after), 50)  # noqa: B023
        print(f"{count:4} {ours:12.3f} {again:10.3f} {ours / again:7.2f}")
        assert ours / again < 2


def test_growth_with_the_number_of_gpus() -> None:
    """Choose a quarter and half of all GPUs, on a real layout and on random links."""
    print(
        "\nGPUs "
        + "".join(f"{name:>14}" for name in ("hgx 1/4", "hgx 1/2", "noise 1/4", "noise 1/2"))
    )
    rows: list[list[float]] = []
    for count in COUNTS:
        row = []
        for layout in (hgx, noise):
            for part in (4, 2):
                topology, n = layout(count), count // part
                row.append(spent(lambda: best(topology, topology.mask, n), 2))  # noqa: B023
        rows.append(row)
        print(f"{count:4} " + "".join(f"{ms:11.2f} ms" for ms in row))
    print(
        "growth from 4 to 64: "
        + ", ".join(f"{a / b:.0f}x" for a, b in zip(rows[-1], rows[0], strict=True))
    )
    assert all(a / b < 4_000 for a, b in zip(rows[-1], rows[0], strict=True))
