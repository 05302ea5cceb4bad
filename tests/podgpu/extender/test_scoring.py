"""How good nodes are for a pod, beside each other."""

from collections.abc import Callable

import pytest

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.gpu_requirement import Requirement
from podgpu.extender.node_selection.node_fit import Fit, fit
from podgpu.extender.node_selection.node_score import scored
from tests.pipeline.topology.layouts import dgx1, hgx, islands, pcie
from tests.podgpu.extender.cluster import free_of

Layout = Callable[[], Topology]

NV18 = 1800


@pytest.mark.parametrize(
    ("layout", "held", "count", "required", "made"),
    [
        # The pair's level and its NVLinks.
        (hgx, (), 2, None, Fit(NV18 + 20, 0, 6)),
        (hgx, (0, 1, 2, 5, 6, 7), 2, None, Fit(NV18 + 10, 0, 0)),
        (pcie, (), 2, None, Fit(50, 0, 6)),
        (pcie, (0, 2, 4, 6), 2, None, Fit(20, 0, 2)),
        (dgx1, (), 2, None, Fit(250, 0, 6)),
        # A single one: the others that are free in its NVLink group, else in the smallest node.
        (hgx, (), 1, None, Fit(0, 7, 7)),
        (hgx, (0, 1, 2), 1, None, Fit(0, 4, 4)),
        (islands, (0, 2), 1, None, Fit(0, 1, 5)),
        (pcie, (), 1, None, Fit(0, 1, 7)),
        (pcie, (3,), 1, None, Fit(0, 0, 6)),
        # Too few, or not in one group.
        (hgx, (0,), 8, None, None),
        (pcie, (), 2, Requirement.NVLINK, None),
        (pcie, (0, 2, 4, 6), 2, Requirement.SINGLE, None),
        # Within the groups that are good enough, and no others.
        (islands, (), 2, Requirement.SINGLE, Fit(50, 0, 6)),
        (islands, (), 2, Requirement.NVLINK, Fit(420, 0, 6)),
        (islands, (0,), 4, Requirement.NVLINK, Fit(4 * 6 * 100 + 2 * 20 + 4 * 10, 0, 3)),
        (pcie, (0, 2, 4), 2, Requirement.SINGLE, Fit(50, 0, 3)),
        (pcie, (1,), 1, Requirement.SINGLE, Fit(0, 0, 6)),
    ],
)  # fmt: skip
def test_what_a_node_gives(
    layout: Layout,
    held: tuple[int, ...],
    count: int,
    required: Requirement | None,
    made: Fit | None,
) -> None:
    topology = layout()
    assert fit(topology, free_of(topology, *held), count, required) == made


@pytest.mark.parametrize(
    ("fits", "points"),
    [
        ([], []),
        ([None], [0]),
        # One node alone: nothing to be worse than, but what is left.
        ([Fit(100, 0, 0)], [10]),
        ([Fit(100, 0, 4)], [8]),
        # Links.
        ([Fit(1820, 0, 0), Fit(910, 0, 0), Fit(50, 0, 0)], [10, 6, 2]),
        # To the nearest point, halves upwards.
        ([Fit(16, 0, 0), Fit(15, 0, 0), Fit(14, 0, 0)], [10, 10, 9]),
        # What is left, between nodes that are joined alike.
        ([Fit(100, 0, 0), Fit(100, 0, 2), Fit(100, 0, 4)], [10, 9, 8]),
        # A single GPU: what it breaks, then what is left.
        ([Fit(0, 0, 0), Fit(0, 1, 0), Fit(0, 2, 0)], [10, 6, 2]),
        ([Fit(0, 0, 7), Fit(0, 3, 7)], [8, 0]),
        ([Fit(0, 0, 3), Fit(0, 0, 6)], [9, 8]),
        # Who is out doesn't count.
        ([None, Fit(10, 0, 1), None], [0, 8, 0]),
    ],
)
def test_points(fits: list[Fit | None], points: list[int]) -> None:
    assert scored(fits) == points


def ranked(*nodes: tuple[Layout, tuple[int, ...]], count: int) -> list[int]:
    topologies = [(layout(), held) for layout, held in nodes]
    return scored([fit(each, free_of(each, *held), count, None) for each, held in topologies])


def test_nvlink_comes_before_pcie_and_an_opened_node_before_a_whole_one() -> None:
    points = ranked((pcie, ()), (hgx, ()), (hgx, (0, 1, 2, 3)), (hgx, (0, 4)), count=4)
    assert points[0] < points[1] < points[2]
    assert points[3] < points[2], "three and one are worse than four of one socket"


def test_a_single_gpu_goes_where_a_pair_is_broken_already() -> None:
    points = ranked((hgx, ()), (pcie, ()), (pcie, (5,)), count=1)
    assert points[0] < points[1] < points[2]
