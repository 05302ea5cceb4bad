"""A device with several holders: one series, or a copy for each holder (`sharing: copies`).

`test_process_shares.py` is about the fields of which each holder has a value of its own.
"""

import pytest

from pipeline.exposition.options import LabelForm
from pipeline.model import Claim
from tests.pipeline.exposition.pages import of, parsed, plain_gpus, rendered
from tests.support.nodes import Node, claim, claims, gpu, kubelet_claim, mig, reading, uuid_of

A = uuid_of(0)
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def node(*held: Claim) -> Node:
    bench_node = Node()
    bench_node.has(gpu(0), gpu(1))
    bench_node.say(claims(*held), "kubelet", "podresources")
    bench_node.reads(*(reading(gpu(at), "power_watts", 10 * at + 5) for at in range(2)))
    return bench_node


def copies(bench_node: Node) -> list[tuple[str, str, str | None, float]]:
    """Return pod, container, replica and value of the first GPU's readings."""
    series = parsed(rendered(bench_node.snapshot(), sharing="copies"))
    return [
        (labels["pod"], labels["container"], labels.get("vgpu"), value)
        for labels, value in of(series, "DCGM_FI_DEV_POWER_USAGE")
        if labels["gpu"] == "0"
    ]


def shared(pod: str, *numbers: int, container: str = "main") -> Claim:
    return kubelet_claim(pod, *(f"{A}::{number}" for number in numbers), container=container)


def test_each_holder_has_a_copy() -> None:
    assert copies(node(shared("a", 3), shared("b", 0))) == [
        ("a", "main", "3", 5),
        ("b", "main", "0", 5),
    ]


def test_each_replica_of_a_holder_has_a_copy() -> None:
    assert copies(node(shared("a", 10, 2))) == [("a", "main", "2", 5), ("a", "main", "10", 5)]


def test_a_single_replica_has_its_number_too() -> None:
    assert copies(node(shared("a", 1))) == [("a", "main", "1", 5)]


def test_replica_ids_of_another_device_plugin_have_a_number() -> None:
    assert copies(node(kubelet_claim("a", "nvidia0/vgpu3"))) == [("a", "main", "3", 5)]


def test_replicas_of_a_mig_instance_have_a_number() -> None:
    bench_node = Node()
    instance = mig(gpu(0), 1)
    bench_node.has(gpu(0), instance)
    bench_node.say(claims(kubelet_claim("a", f"{instance.uuid}::4")), "kubelet", "podresources")
    bench_node.reads(reading(instance, "power_watts", 5))
    assert copies(bench_node) == [("a", "main", "4", 5)]


def test_a_device_without_replicas_has_no_replica_number() -> None:
    assert copies(node(kubelet_claim("a", A))) == [("a", "main", None, 5)]
    assert copies(node()) == [("", "", None, 5)]


def test_holders_without_replicas_have_copies_without_a_number() -> None:
    bench_node = node()
    bench_node.podlist(claim("a", A, share=0.5), claim("b", A, share=0.25, container="x"))
    assert copies(bench_node) == [("a", "main", None, 5), ("b", "x", None, 5)]


def test_each_container_of_one_pod_has_a_copy() -> None:
    bench_node = node(shared("a", 1), shared("a", 2, container="side"))
    assert copies(bench_node) == [("a", "main", "1", 5), ("a", "side", "2", 5)]


def test_without_container_labels_there_are_no_copies() -> None:
    bench_node = node(shared("a", 3), shared("b", 0))
    page = rendered(bench_node.snapshot(), sharing="copies", containers=False)
    assert len(of(parsed(page), "DCGM_FI_DEV_POWER_USAGE")) == 2


@pytest.mark.parametrize("form", ["dcgm", "dcgm-old"])
def test_a_sum_counts_a_shared_device_once_per_copy(
    form: LabelForm,
) -> None:
    for sharing, total in (
        ("info", 120.125 + 120.25 + 120.375),
        ("copies", 120.125 + 2 * 120.25 + 120.375),
    ):
        series = parsed(rendered(plain_gpus(), sharing=sharing, labels=form))
        assert sum(value for _, value in of(series, "DCGM_FI_DEV_POWER_USAGE")) == total


def test_each_copy_has_its_own_pod_labels_and_replica_number() -> None:
    """One reading results in several lines, and each line has the right value."""
    bench_node = node(shared("a", 1), shared("b", 2))
    bench_node.reads(
        *(reading(gpu(at), "energy_millijoules", at + 1) for at in range(2)),
        reading(gpu(0), "xid_last", 79),
    )
    series = parsed(rendered(bench_node.snapshot(), sharing="copies", inline=("pod_uid",)))
    energy = [(labels["gpu"], labels["pod"], v) for labels, v in of(series, ENERGY)]
    assert energy == [("0", "a", 1), ("0", "b", 1), ("1", "", 2)]
    last = of(series, "DCGM_FI_DEV_XID_ERRORS")
    assert [(labels["vgpu"], labels["err_code"], v) for labels, v in last] == [
        ("1", "79", 79),
        ("2", "79", 79),
    ]


def test_holder_info_lists_each_holder_once() -> None:
    bench_node = node(shared("a", 1, 2), shared("b", 3))
    series = parsed(rendered(bench_node.snapshot(), sharing="copies"))
    assert [h["pod"] for h, _ in of(series, "podgpu_device_holder_info")] == ["a", "b"]
