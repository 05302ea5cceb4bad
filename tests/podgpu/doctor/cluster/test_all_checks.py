"""All checks of a cluster: on a healthy cluster, on an empty one, and on unexpected objects."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import cluster_diagnosis, daemonset_checks, monitor_checks, node_gpus
from podgpu.doctor.cluster.object_fetcher import _labels
from podgpu.doctor.cluster.objects import Cluster
from tests.podgpu.doctor.cluster.gpu_nodes import labelled
from tests.podgpu.doctor.cluster.monitors import EVERYTHING, PORT, SERVICE, monitor
from tests.podgpu.doctor.cluster.objects import PRESENT, Raw, cluster, daemonset, pod, raw, taint
from tests.podgpu.doctor.cluster.unexpected_objects import UNEXPECTED, replaced
from tests.podgpu.doctor.support import of
from tests.support.examples import examples

ALL_CHECKS = (
    daemonset_checks.check_daemonsets,
    node_gpus.check_nodes,
    monitor_checks.check_monitors,
    cluster_diagnosis.check_exporters,
)


def test_all_checks_of_a_healthy_cluster_are_ok() -> None:
    found = [finding for check in ALL_CHECKS for finding in check(cluster())]
    assert [finding for finding in found if finding.fix] == []
    assert of(found, "cluster.daemonset").observed == "1 of 1 pods are ready"


def test_checks_of_objects_that_cannot_be_listed_are_skipped() -> None:
    found = [finding for check in ALL_CHECKS for finding in check(Cluster())]
    assert {finding.verdict for finding in found} == {Verdict.SKIPPED}


FULL = daemonset(
    spec={
        "nodeSelector": {PRESENT: "true"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                }
            }
        },
        "runtimeClassName": "nvidia",
    },
    ready=0,
)
TAINTED = labelled(8)
TAINTED["spec"]["taints"] = [taint("a", value="b")]
OBJECTS: dict[str, Raw] = {
    "nodes": TAINTED,
    "daemonsets": FULL,
    "pods": pod(FULL, "gpu-1", {"reason": "a", "message": "b"}),
    "slices": raw("ResourceSlice", "s", spec={"nodeName": "gpu-1", "driver": "gpu.nvidia.com"}),
    "monitors": monitor(spec=PORT),
    "prometheuses": EVERYTHING,
    "services": SERVICE,
    "namespaces": raw("Namespace", "mon", labels={"team": "infra"}),
}


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted(OBJECTS)), st.lists(st.integers(0, 5), max_size=8), UNEXPECTED)
def test_an_unexpected_object_does_not_break_a_check(
    name: str, at: list[int], unexpected: Any
) -> None:
    """Only `kind` is always valid, since podgpu sets it."""
    whole = {key: [each] for key, each in OBJECTS.items()}
    broken = replaced(OBJECTS[name], at, unexpected)
    kind = OBJECTS[name]["kind"]
    whole[name] = [*whole[name], {**(broken if isinstance(broken, dict) else {}), "kind": kind}]
    found = [finding for check in ALL_CHECKS for finding in check(cluster(**whole))]
    assert {finding.check for finding in found} >= {"cluster.daemonset", "cluster.gpus"}
    for each in whole["daemonsets"]:
        assert isinstance(_labels(each), str)
