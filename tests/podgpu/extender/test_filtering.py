"""Filter: which nodes a pod fits on."""

from collections.abc import Callable

import pytest

from pipeline.model.topology_tree import Topology
from podgpu.extender.node_selection.node_filter import PASSED, filter_node, unfiltered
from podgpu.extender.node_selection.node_fit import fit
from podgpu.extender.node_selection.node_state import NOT_YET, NOTHING, NodeKnowledge
from podgpu.extender.node_selection.pod_demand import Demand, Requirement
from tests.pipeline.topology.layouts import dgx1, four_h100, hgx, islands, pcie
from tests.podgpu.extender.cluster import NOW, REFRESH, free_of, knowledge

NVLINK, SINGLE, MULTIPLE, HOSTBRIDGE, NODE = Requirement


def reason(demand: Demand, node: NodeKnowledge) -> str:
    return filter_node(demand, node, NOW).reason


# Without a requirement only the number of GPUs counts.


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
def test_without_a_requirement_free_and_partly_held_gpus_are_counted(
    count: int, free: int, part: int, why: str
) -> None:
    verdict = filter_node(Demand(count), knowledge(hgx(), free, part=part), NOW)
    assert verdict.reason == why
    assert not verdict.is_unresolvable


def test_a_request_for_more_gpus_than_the_node_has_is_unresolvable() -> None:
    verdict = filter_node(Demand(9), knowledge(hgx()), NOW)
    assert verdict.reason == "podgpu: 8 of 8 GPUs are free, the pod requests 9"
    assert verdict.is_unresolvable


UNKNOWN = {
    "the extender has not listed the nodes of the cluster yet": NOT_YET,
    "the extender does not know the node": NOTHING,
    "the node has no topology annotation": NodeKnowledge(),
    "the topology annotation of the node is invalid": NodeKnowledge(readable=False),
    "the topology annotation of the node is out of date": knowledge(hgx(), 0, age=3 * REFRESH + 1),
    "the topology annotation of the node does not say which GPUs are free": knowledge(hgx(), None),
    # As with time slicing, or with MIG instances under one resource name.
    "the node offers shares of GPUs": knowledge(hgx(), 0, devices=32),
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_a_node_with_unknown_topology_passes(why: str) -> None:
    assert filter_node(Demand(8), UNKNOWN[why], NOW) is PASSED


@pytest.mark.parametrize("why", UNKNOWN)
@pytest.mark.parametrize("required", Requirement)
def test_a_node_with_unknown_topology_fails_a_requirement(why: str, required: Requirement) -> None:
    verdict = filter_node(Demand(1, required), UNKNOWN[why], NOW)
    assert verdict.reason == f"podgpu: {why}, and the pod requires {required.value}"
    # Unknown facts may become known later. That the node offers shares is known already.
    assert verdict.is_unresolvable == ("offers shares" in why)


@pytest.mark.parametrize(
    ("free", "age", "devices", "demand", "permanently"),
    [
        # The node is known to offer shares; a GPU that becomes free does not change that.
        (0, 0, 32, Demand(2, NVLINK), True),
        (None, 0, 32, Demand(2, NVLINK), True),
        (0, 3 * REFRESH + 1, 32, Demand(2, NVLINK), False),
        # The groups are known even if no source shows which GPUs are free.
        (None, 0, None, Demand(8, NVLINK), False),
        (None, 0, 7, Demand(8, NVLINK), True),
        (None, 0, None, Demand(2, SINGLE), True),
        (None, 3 * REFRESH + 1, None, Demand(2, SINGLE), False),
    ],
)
def test_only_a_fresh_annotation_makes_a_node_unresolvable(
    free: int | None, age: float, devices: int | None, demand: Demand, *, permanently: bool
) -> None:
    """If it did not, the scheduler's preemption would evict pods from such a node in vain."""
    verdict = filter_node(demand, knowledge(hgx(), free, age=age, devices=devices), NOW)
    assert verdict.reason
    assert verdict.is_unresolvable == permanently


def test_an_annotation_is_valid_for_three_refresh_intervals() -> None:
    assert reason(Demand(1), knowledge(hgx(), 0, age=3 * REFRESH)) != ""
    assert reason(Demand(1), knowledge(hgx(), 0, age=3 * REFRESH + 0.001)) == ""


@pytest.mark.parametrize("devices", [None, 0, 7, 8])
def test_a_node_with_no_more_devices_than_gpus_offers_whole_gpus(devices: int | None) -> None:
    assert reason(Demand(1), knowledge(hgx(), 0, devices=devices)) != ""


# The kubelet allocates fewer devices than the node has GPUs: MIG mode, a device plugin that offers
# only some, or an unhealthy GPU. It is unknown which are missing, so the worst case is assumed.


@pytest.mark.parametrize(
    ("layout", "held", "devices", "demand", "passes"),
    [
        (hgx, (), 8, Demand(8, NVLINK), True),
        (hgx, (), 7, Demand(7, NVLINK), True),
        (hgx, (), 7, Demand(8, NVLINK), False),
        # Three of the allocatable GPUs are held, and one is left.
        (hgx, (1, 2, 3), 4, Demand(4, NVLINK), False),
        (hgx, (1, 2, 3), 4, Demand(1, NVLINK), True),
        (hgx, (0, 1, 2, 3), 7, Demand(4, NODE), False),
        (hgx, (0, 1, 2, 3), 7, Demand(3, NODE), True),
        (pcie, (), 7, Demand(2, SINGLE), False),
        (pcie, (), 7, Demand(1, SINGLE), True),
        # The scheduler itself counts devices.
        (hgx, (), 4, Demand(8), True),
    ],
)  # fmt: skip
def test_with_fewer_devices_than_gpus_the_worst_case_is_assumed(
    layout: Callable[[], Topology],
    held: tuple[int, ...],
    devices: int,
    demand: Demand,
    passes: bool,
) -> None:
    topology = layout()
    node = knowledge(topology, free_of(topology, *held), devices=devices)
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
def test_the_reason_names_the_gpus_that_are_not_allocatable(
    devices: int, held: tuple[int, ...], why: str
) -> None:
    verdict = filter_node(
        Demand(8, NVLINK), knowledge(hgx(), free_of(hgx(), *held), devices=devices), NOW
    )
    assert why in verdict.reason
    assert verdict.is_unresolvable
    again = filter_node(Demand(4, NVLINK), knowledge(hgx(), 0b11111, devices=6), NOW)
    assert "2 of the node's 8 GPUs are not allocatable" in again.reason
    assert not again.is_unresolvable, "it would do if all were free"


# With a requirement all GPUs have to be in one group.

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
def test_a_requirement_needs_enough_free_gpus_in_one_group(
    layout: Callable[[], Topology],
    held: tuple[int, ...],
    demand: Demand,
    why: str,
    permanently: bool,
) -> None:
    topology = layout()
    verdict = filter_node(demand, knowledge(topology, free_of(topology, *held)), NOW)
    assert (verdict.reason, verdict.is_unresolvable) == (why, permanently)


def test_a_partly_held_gpu_does_not_count_for_a_requirement() -> None:
    assert reason(Demand(2, NVLINK), knowledge(hgx(), 0b1, part=0b10)) != ""
    assert reason(Demand(2), knowledge(hgx(), 0b1, part=0b10)) == ""


@pytest.mark.parametrize("node", [NOTHING, knowledge(hgx())])
def test_a_pod_with_an_unknown_requirement_fits_on_no_node(node: NodeKnowledge) -> None:
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
def test_a_node_that_was_not_checked_in_time_counts_as_unknown(
    demand: Demand, passes: bool
) -> None:
    verdict = unfiltered(demand, "late")
    assert verdict.reason == ("" if passes else "podgpu: late")
