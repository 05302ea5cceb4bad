"""Which nodes a pod fits on."""

from collections.abc import Callable

import pytest

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.gpu_requirement import Requirement
from podgpu.extender.node_selection.node_filter import PASSED, filter_node, unfiltered
from podgpu.extender.node_selection.node_fit import fit
from podgpu.extender.node_selection.node_state import NOT_YET, NOTHING, NodeKnowledge
from podgpu.extender.node_selection.pod_demand import Demand
from tests.pipeline.topology.layouts import dgx1, four_h100, hgx, islands, pcie
from tests.podgpu.extender.cluster import NOW, REFRESH, free_of, known

NVLINK, SINGLE, MULTIPLE, HOSTBRIDGE, NODE = Requirement


def reason(demand: Demand, node: NodeKnowledge) -> str:
    return filter_node(demand, node, NOW).reason


# Nothing is required: GPUs are counted.


@pytest.mark.parametrize(
    ("count", "free", "part", "why"),
    [
        (0, 0, 0, ""),
        (1, 0b1, 0, ""),
        (8, 0xFF, 0, ""),
        (4, 0b0011, 0b1100, ""),
        (1, 0, 0b1, ""),
        (4, 0b11, 0, "podgpu: 2 of 8 GPUs are free, the pod requests 4"),
        (1, 0, 0, "podgpu: 0 of 8 GPUs are free, the pod requests 1"),
        (2, 0b1, 0, "podgpu: 1 of 8 GPUs is free, the pod requests 2"),
        (4, 0b11, 0b100, "podgpu: 2 of 8 GPUs are free and 1 in part, the pod requests 4"),
    ],
)
def test_what_is_free_or_held_in_part_has_to_do(count: int, free: int, part: int, why: str) -> None:
    verdict = filter_node(Demand(count), known(hgx(), free, part=part), NOW)
    assert verdict.reason == why
    assert not verdict.is_unresolvable


def test_more_than_the_node_has_will_never_do() -> None:
    verdict = filter_node(Demand(9), known(hgx()), NOW)
    assert verdict.reason == "podgpu: 8 of 8 GPUs are free, the pod requests 9"
    assert verdict.is_unresolvable


UNKNOWN = {
    "the extender has not listed the nodes of the cluster yet": NOT_YET,
    "the extender does not know the node": NOTHING,
    "the node has no topology annotation": NodeKnowledge(),
    "the topology annotation of the node is invalid": NodeKnowledge(readable=False),
    "the topology annotation of the node is out of date": known(hgx(), 0, age=3 * REFRESH + 1),
    "the topology annotation of the node does not say which GPUs are free": known(hgx(), None),
    # As time-slicing does it, or MIG's instances under one name.
    "the node offers shares of GPUs": known(hgx(), 0, devices=32),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_unknown_is_not_full(why: str) -> None:
    assert filter_node(Demand(8), UNKNOWN[why], NOW) is PASSED


@pytest.mark.parametrize("why", UNKNOWN)
@pytest.mark.parametrize("required", Requirement)
def test_unknown_is_not_enough_where_something_is_required(why: str, required: Requirement) -> None:
    verdict = filter_node(Demand(1, required), UNKNOWN[why], NOW)
    assert verdict.reason == f"podgpu: {why}, and the pod requires {required.value}"
    # What isn't known may become known. That a node hands out parts is known.
    assert verdict.is_unresolvable == ("offers shares" in why)


@pytest.mark.parametrize(
    ("free", "age", "devices", "demand", "permanently"),
    [
        # That it hands out parts is known, and no GPU that becomes free changes it.
        (0, 0, 32, Demand(2, NVLINK), True),
        (None, 0, 32, Demand(2, NVLINK), True),
        (0, 3 * REFRESH + 1, 32, Demand(2, NVLINK), False),
        # So are the groups where nobody tells which GPUs are free.
        (None, 0, None, Demand(8, NVLINK), False),
        (None, 0, 7, Demand(8, NVLINK), True),
        (None, 0, None, Demand(2, SINGLE), True),
        (None, 3 * REFRESH + 1, None, Demand(2, SINGLE), False),
    ],
)
def test_permanently_is_reported_by_a_fresh_annotation_whatever_is_free(
    free: int | None, age: float, devices: int | None, demand: Demand, *, permanently: bool
) -> None:
    """Otherwise the scheduler's preemption may evict pods from such a node in vain."""
    verdict = filter_node(demand, known(hgx(), free, age=age, devices=devices), NOW)
    assert verdict.reason
    assert verdict.is_unresolvable == permanently


def test_three_refreshes_are_waited_for() -> None:
    assert reason(Demand(1), known(hgx(), 0, age=3 * REFRESH)) != ""
    assert reason(Demand(1), known(hgx(), 0, age=3 * REFRESH + 0.001)) == ""


@pytest.mark.parametrize("devices", [None, 0, 7, 8])
def test_no_more_devices_than_gpus_are_whole_ones(devices: int | None) -> None:
    assert reason(Demand(1), known(hgx(), 0, devices=devices)) != ""


# The kubelet hands out fewer than there are: MIG mode, a device plugin that knows of some only, one
# that is not healthy. Which ones nobody says, so the worst is taken for granted.


@pytest.mark.parametrize(
    ("layout", "held", "devices", "demand", "passes"),
    [
        (hgx, (), 8, Demand(8, NVLINK), True),
        (hgx, (), 7, Demand(7, NVLINK), True),
        (hgx, (), 7, Demand(8, NVLINK), False),
        # Three of those that are handed out are held, and one of them is left.
        (hgx, (1, 2, 3), 4, Demand(4, NVLINK), False),
        (hgx, (1, 2, 3), 4, Demand(1, NVLINK), True),
        (hgx, (0, 1, 2, 3), 7, Demand(4, NODE), False),
        (hgx, (0, 1, 2, 3), 7, Demand(3, NODE), True),
        (pcie, (), 7, Demand(2, SINGLE), False),
        (pcie, (), 7, Demand(1, SINGLE), True),
        # The scheduler counts devices by itself.
        (hgx, (), 4, Demand(8), True),
    ],
)  # fmt: skip
def test_which_gpus_are_not_handed_out_no_one_knows(
    layout: Callable[[], Topology],
    held: tuple[int, ...],
    devices: int,
    demand: Demand,
    passes: bool,
) -> None:
    topology = layout()
    node = known(topology, free_of(topology, *held), devices=devices)
    verdict = filter_node(demand, node, NOW)
    assert (verdict.reason == "") == passes
    fits = fit(
        topology, free_of(topology, *held), demand.count, demand.requirement, unsure=8 - devices
    )
    assert (fits is not None) == passes


@pytest.mark.parametrize(
    ("devices", "held", "why"),
    [
        (7, (), "1 of the node's 8 GPUs is not allocatable, it is unknown which, and no "),
        (7, (), " NVLink group has 8 free GPUs without it, the most is 8"),
        (6, (0,), "no NVLink group of the node has 8 free GPUs, the most is 7"),
    ],
)
def test_what_is_said_of_them(devices: int, held: tuple[int, ...], why: str) -> None:
    verdict = filter_node(
        Demand(8, NVLINK), known(hgx(), free_of(hgx(), *held), devices=devices), NOW
    )
    assert why in verdict.reason
    assert verdict.is_unresolvable
    again = filter_node(Demand(4, NVLINK), known(hgx(), 0b11111, devices=6), NOW)
    assert "2 of the node's 8 GPUs are not allocatable" in again.reason
    assert not again.is_unresolvable, "it would do if all were free"


# Something is required: they have to be in one group.

NO_NVLINK = "podgpu: the node has no NVLink group"


@pytest.mark.parametrize(
    ("layout", "held", "demand", "why", "permanently"),
    [
        (hgx, (), Demand(8, NVLINK), "", False),
        (hgx, (0, 4), Demand(6, NVLINK), "", False),
        (hgx, (0, 4), Demand(7, NVLINK),
         "podgpu: no NVLink group of the node has 7 free GPUs, the most is 6", False),
        (islands, (), Demand(4, NVLINK), "", False),
        (islands, (0, 1), Demand(4, NVLINK),
         "podgpu: no NVLink group of the node has 4 free GPUs, the most is 3", False),
        (islands, (), Demand(5, NVLINK),
         "podgpu: no NVLink group of the node has 5 GPUs, the largest has 4", True),
        (pcie, (), Demand(2, NVLINK), NO_NVLINK, True),
        (pcie, (), Demand(1, NVLINK), NO_NVLINK, True),
        (pcie, (), Demand(2, SINGLE), "", False),
        (pcie, (0, 2, 4, 6), Demand(2, SINGLE),
         "podgpu: no PCIe switch of the node has 2 free GPUs, the most is 1", False),
        (pcie, (), Demand(3, SINGLE),
         "podgpu: no PCIe switch of the node has 3 GPUs, the largest has 2", True),
        (hgx, (), Demand(1, SINGLE), "", False),
        (hgx, tuple(range(8)), Demand(1, SINGLE),
         "podgpu: no PCIe switch of the node has 1 free GPU, the most is 0", False),
        (hgx, (), Demand(2, SINGLE),
         "podgpu: no PCIe switch of the node has 2 GPUs, the largest has 1", True),
        (pcie, (), Demand(2, MULTIPLE), "", False),
        (pcie, (), Demand(3, MULTIPLE),
         "podgpu: no group of PCIe switches of the node has 3 GPUs, the largest has 2", True),
        (dgx1, (), Demand(4, HOSTBRIDGE), "", False),
        (dgx1, (0, 7), Demand(4, HOSTBRIDGE),
         "podgpu: no PCIe host bridge of the node has 4 free GPUs, the most is 3", False),
        (four_h100, (), Demand(4, HOSTBRIDGE), "", False),
        (hgx, (), Demand(4, NODE), "", False),
        (hgx, (0, 7), Demand(4, NODE),
         "podgpu: no NUMA node of the node has 4 free GPUs, the most is 3", False),
        (hgx, (), Demand(5, NODE),
         "podgpu: no NUMA node of the node has 5 GPUs, the largest has 4", True),
    ],
)  # fmt: skip
def test_all_gpus_are_in_one_group(
    layout: Callable[[], Topology],
    held: tuple[int, ...],
    demand: Demand,
    why: str,
    permanently: bool,
) -> None:
    topology = layout()
    verdict = filter_node(demand, known(topology, free_of(topology, *held)), NOW)
    assert (verdict.reason, verdict.is_unresolvable) == (why, permanently)


def test_a_gpu_that_is_held_in_part_is_none_for_a_group() -> None:
    assert reason(Demand(2, NVLINK), known(hgx(), 0b1, part=0b10)) != ""
    assert reason(Demand(2), known(hgx(), 0b1, part=0b10)) == ""


@pytest.mark.parametrize("node", [NOTHING, known(hgx())])
def test_a_word_that_means_nothing_fits_nowhere(node: NodeKnowledge) -> None:
    verdict = filter_node(Demand(1, wrong="podgpu.io/require is 'x': take one"), node, NOW)
    assert verdict.reason == "podgpu: podgpu.io/require is 'x': take one"
    assert verdict.is_unresolvable


@pytest.mark.parametrize(
    ("demand", "passes"),
    [
        (Demand(0), True),
        (Demand(8), True),
        (Demand(2, NVLINK), False),
        (Demand(2, wrong="x"), False),
    ],
)
def test_without_time_it_is_as_without_knowledge(demand: Demand, passes: bool) -> None:
    verdict = unfiltered(demand, "late")
    assert verdict.reason == ("" if passes else "podgpu: late")
