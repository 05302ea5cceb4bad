"""Scores of nodes for a pod, compared with each other."""

from collections.abc import Callable

import pytest

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.node_fit import Fit, fit, scored
from podgpu.extender.node_selection.pod_demand import Requirement
from tests.pipeline.topology.layouts import dgx1, hgx, islands, pcie
from tests.podgpu.extender.cluster import free_of

Layout = Callable[[], Topology]

NV18 = 1800


@pytest.mark.parametrize(
    ("layout", "held", "count", "required", "expected"),
    [
        # A pair: its PCIe level and its NVLinks.
        (hgx, (), 2, None, Fit(NV18 + 20, 0, 6)),
        (hgx, (0, 1, 2, 5, 6, 7), 2, None, Fit(NV18 + 10, 0, 0)),
        (pcie, (), 2, None, Fit(50, 0, 6)),
        (pcie, (0, 2, 4, 6), 2, None, Fit(20, 0, 2)),
        (dgx1, (), 2, None, Fit(250, 0, 6)),
        # A single GPU: the other free GPUs in its NVLink group, or else in its smallest group.
        (hgx, (), 1, None, Fit(0, 7, 7)),
        (hgx, (0, 1, 2), 1, None, Fit(0, 4, 4)),
        (islands, (0, 2), 1, None, Fit(0, 1, 5)),
        (pcie, (), 1, None, Fit(0, 1, 7)),
        (pcie, (3,), 1, None, Fit(0, 0, 6)),
        # Too few free GPUs, or not in one group.
        (hgx, (0,), 8, None, None),
        (pcie, (), 2, Requirement.NVLINK, None),
        (pcie, (0, 2, 4, 6), 2, Requirement.SINGLE, None),
        # Only within the groups that meet the requirement.
        (islands, (), 2, Requirement.SINGLE, Fit(50, 0, 6)),
        (islands, (), 2, Requirement.NVLINK, Fit(420, 0, 6)),
        (islands, (0,), 4, Requirement.NVLINK, Fit(4 * 6 * 100 + 2 * 20 + 4 * 10, 0, 3)),
        (pcie, (0, 2, 4), 2, Requirement.SINGLE, Fit(50, 0, 3)),
        (pcie, (1,), 1, Requirement.SINGLE, Fit(0, 0, 6)),
    ],
)  # fmt: skip
def test_the_best_fit_on_a_node(
    layout: Layout,
    held: tuple[int, ...],
    count: int,
    required: Requirement | None,
    expected: Fit | None,
) -> None:
    topology = layout()
    assert fit(topology, free_of(topology, *held), count, required) == expected


@pytest.mark.parametrize(
    ("fits", "points"),
    [
        ([], []),
        ([None], [0]),
        # A single node: only the number of GPUs that stay free lowers its score.
        ([Fit(100, 0, 0)], [10]),
        ([Fit(100, 0, 4)], [8]),
        # NVLinks.
        ([Fit(1820, 0, 0), Fit(910, 0, 0), Fit(50, 0, 0)], [10, 6, 2]),
        # Rounded to the nearest point, halves upwards.
        ([Fit(16, 0, 0), Fit(15, 0, 0), Fit(14, 0, 0)], [10, 10, 9]),
        # Among nodes with equal links: the number of GPUs that stay free.
        ([Fit(100, 0, 0), Fit(100, 0, 2), Fit(100, 0, 4)], [10, 9, 8]),
        # A single GPU: the group that it breaks, then the number of GPUs that stay free.
        ([Fit(0, 0, 0), Fit(0, 1, 0), Fit(0, 2, 0)], [10, 6, 2]),
        ([Fit(0, 0, 7), Fit(0, 3, 7)], [8, 0]),
        ([Fit(0, 0, 3), Fit(0, 0, 6)], [9, 8]),
        # Nodes on which the pod does not fit have no effect.
        ([None, Fit(10, 0, 1), None], [0, 8, 0]),
    ],
)
def test_scores_of_several_fits(fits: list[Fit | None], points: list[int]) -> None:
    assert scored(fits) == points


def ranked(*nodes: tuple[Layout, tuple[int, ...]], count: int) -> list[int]:
    topologies = [(layout(), held) for layout, held in nodes]
    return scored([fit(each, free_of(each, *held), count, None) for each, held in topologies])


def test_nvlink_scores_above_pcie_and_a_partly_used_node_above_an_unused_one() -> None:
    points = ranked((pcie, ()), (hgx, ()), (hgx, (0, 1, 2, 3)), (hgx, (0, 4)), count=4)
    assert points[0] < points[1] < points[2]
    assert points[3] < points[2], "three and one are worse than four of one socket"


def test_a_single_gpu_scores_best_where_a_pair_is_already_broken() -> None:
    points = ranked((hgx, ()), (pcie, ()), (pcie, (5,)), count=1)
    assert points[0] < points[1] < points[2]
