"""A device that several hold: once, or a copy for each."""

import pytest

from pipeline.exposition.options import LabelForm
from pipeline.model import Claim
from tests.pipeline.exposition.pages import of, parsed, plain_gpus, rendered
from tests.support.nodes import Node, claim, claims, gpu, kubelet_claim, mig, reading, uuid_of

A = uuid_of(0)


def node(*said: Claim) -> Node:
    made = Node()
    made.has(gpu(0), gpu(1))
    made.say(claims(*said), "kubelet", "podresources")
    made.reads(*(reading(gpu(at), "gpu_utilization_percent", 10 * at + 5) for at in range(2)))
    return made


def copies(made: Node) -> list[tuple[str, str, str | None, float]]:
    """Pod, container, replica and value of the first GPU's readings."""
    series = parsed(rendered(made.snapshot(), sharing="copies"))
    return [
        (labels["pod"], labels["container"], labels.get("vgpu"), value)
        for labels, value in of(series, "DCGM_FI_DEV_GPU_UTIL")
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


def test_one_replica_alone_is_reported_too() -> None:
    assert copies(node(shared("a", 1))) == [("a", "main", "1", 5)]


def test_ids_of_another_device_plugin() -> None:
    assert copies(node(kubelet_claim("a", "nvidia0/vgpu3"))) == [("a", "main", "3", 5)]


def test_replicas_of_a_mig_instance() -> None:
    made = Node()
    instance = mig(gpu(0), 1)
    made.has(gpu(0), instance)
    made.say(claims(kubelet_claim("a", f"{instance.uuid}::4")), "kubelet", "podresources")
    made.reads(reading(instance, "gpu_utilization_percent", 5))
    assert copies(made) == [("a", "main", "4", 5)]


def test_a_device_that_no_one_shares_is_as_ever() -> None:
    assert copies(node(kubelet_claim("a", A))) == [("a", "main", None, 5)]
    assert copies(node()) == [("", "", None, 5)]


def test_holders_by_other_means_than_replicas_have_copies_without_a_number() -> None:
    made = node()
    made.podlist(claim("a", A, share=0.5), claim("b", A, share=0.25, container="x"))
    assert copies(made) == [("a", "main", None, 5), ("b", "x", None, 5)]


def test_containers_of_one_pod_have_a_copy_each() -> None:
    made = node(shared("a", 1), shared("a", 2, container="side"))
    assert copies(made) == [("a", "main", "1", 5), ("a", "side", "2", 5)]


def test_without_containers_there_is_nothing_to_copy() -> None:
    made = node(shared("a", 3), shared("b", 0))
    page = rendered(made.snapshot(), sharing="copies", containers=False)
    assert len(of(parsed(page), "DCGM_FI_DEV_GPU_UTIL")) == 2


@pytest.mark.parametrize("form", ["dcgm", "dcgm-old"])
def test_copies_count_a_device_more_than_once_and_the_page_without_them_once(
    form: LabelForm,
) -> None:
    for sharing, total in (("info", 20 + 40 + 60), ("copies", 20 + 40 + 40 + 60)):
        series = parsed(rendered(plain_gpus(), sharing=sharing, labels=form))
        assert sum(value for _, value in of(series, "DCGM_FI_DEV_GPU_UTIL")) == total


def test_a_copy_has_the_labels_of_its_pod_and_each_copy_its_number() -> None:
    """Values follow their lines where one reading makes several."""
    made = node(shared("a", 1), shared("b", 2))
    made.reads(
        *(reading(gpu(at), "memory_used_bytes", (at + 1) << 20) for at in range(2)),
        reading(gpu(0), "xid_last", 79),
    )
    series = parsed(rendered(made.snapshot(), sharing="copies", inline=("pod_uid",)))
    used = [(labels["gpu"], labels["pod"], v) for labels, v in of(series, "DCGM_FI_DEV_FB_USED")]
    assert used == [("0", "a", 1), ("0", "b", 1), ("1", "", 2)]
    last = of(series, "DCGM_FI_DEV_XID_ERRORS")
    assert [(labels["vgpu"], labels["err_code"], v) for labels, v in last] == [
        ("1", "79", 79),
        ("2", "79", 79),
    ]


def test_holders_are_reported_of_once_each() -> None:
    made = node(shared("a", 1, 2), shared("b", 3))
    series = parsed(rendered(made.snapshot(), sharing="copies"))
    assert [h["pod"] for h, _ in of(series, "podgpu_device_holder_info")] == ["a", "b"]
