"""The check `cluster.gpus`."""

import pytest

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import node_gpus
from podgpu.doctor.cluster.node_gpus import has_gpus
from tests.podgpu.doctor.cluster.gpu_nodes import labelled
from tests.podgpu.doctor.cluster.objects import PRESENT, Raw, cluster, node, raw
from tests.podgpu.doctor.support import is_bad, of


def offering(resources: dict[str, str]) -> Raw:
    return raw("Node", "n", status={"capacity": resources, "allocatable": resources})


LABELS: list[tuple[Raw, bool]] = [
    (raw("Node", "n"), False),
    (raw("Node", "n", labels={PRESENT: "true"}), True),
    (raw("Node", "n", labels={PRESENT: "false"}), False),
    (raw("Node", "n", labels={"cloud.google.com/gke-accelerator": "nvidia-l4"}), True),
    (raw("Node", "n", labels={"feature.node.kubernetes.io/pci-10de.present": "true"}), True),
    (node("n", 8), True),
    (offering({"koordinator.sh/gpu-core": "800"}), True),
    (offering({"aliyun.com/gpu-mem": "80"}), True),
    (offering({"amd.com/gpu": "8"}), False),
    (offering({"example.com/nic": "8"}), False),
    (offering({"nvidia.com/hostdev": "8"}), False),
    (offering({"nvidia.com/mig-1g.10gb": "7"}), True),
    (offering({"nvidia.com/gpu": "9" * 5000}), False),
]


@pytest.mark.parametrize(("made", "has"), LABELS)
def test_a_node_has_gpus_by_its_labels_or_resources(made: Raw, has: bool) -> None:
    assert has_gpus(made) is has


COUNT = {"nvidia.com/gpu.count": "8"}
SHARED = {**COUNT, "nvidia.com/gpu.replicas": "2"}
OFFERS: list[tuple[Raw, str, str]] = [
    (
        labelled(None),
        "has GPUs according to its labels, but offers none",
        "the pod of the device plugin",
    ),
    (labelled(0), "offers none", "the pod of the device plugin"),
    (labelled(8, 6), "allocatable are 6 of 8 nvidia.com/gpu", "unhealthy devices"),
    (labelled(7, None, COUNT), "offers 7 of 8 GPUs", "a GPU may be lost"),
    (labelled(8, None, COUNT), "", ""),
    (labelled(7, None, SHARED), "", ""),
    (labelled(7, None, {"nvidia.com/gpu.count": "\u00b2"}), "", ""),
]


@pytest.mark.parametrize(("made", "observed", "fix"), OFFERS)
def test_a_node_that_does_not_offer_all_its_gpus_is_a_warning(
    made: Raw, observed: str, fix: str
) -> None:
    finding = of(node_gpus.check_nodes(cluster(nodes=[made])), "cluster.gpus")
    if not observed:
        assert finding.verdict is Verdict.OK, finding
        return
    is_bad(finding, "warning", observed, fix)
    assert finding.subject == "Node gpu-1"


def test_nodes_with_the_same_fault_are_one_finding() -> None:
    made = [labelled(None) for _ in range(50)] + [labelled(8, 6), labelled(8)]
    for at, each in enumerate(made):
        each["metadata"]["name"] = f"n{at}"
    findings = node_gpus.check_nodes(cluster(nodes=made))
    assert [each.subject for each in findings] == ["Nodes n0, n1, n2 and 47 more", "Node n50"]
    is_bad(findings[0], "warning", "offers none to pods", "the pod of the device plugin")
    well = of(node_gpus.check_nodes(cluster(nodes=made[-1:] * 9)), "cluster.gpus")
    assert well.observed.endswith("; and 4 more")


def test_gpus_of_a_dra_driver_count_as_offered() -> None:
    slices = [raw("ResourceSlice", "s", spec={"nodeName": "gpu-1", "driver": "gpu.nvidia.com"})]
    finding = of(
        node_gpus.check_nodes(cluster(nodes=[labelled(None)], slices=slices)), "cluster.gpus"
    )
    assert finding.verdict is Verdict.OK
    assert "gpu-1 by claims" in finding.observed


def test_a_cluster_without_gpu_nodes_is_a_warning() -> None:
    finding = of(node_gpus.check_nodes(cluster(nodes=[node("cpu-1", None)])), "cluster.gpus")
    is_bad(finding, "warning", "none of 1 reports a GPU", "feature discovery")
