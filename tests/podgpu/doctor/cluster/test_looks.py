"""All checks of a cluster: on a healthy one, on none, and on objects that are odd."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import daemonset_checks, exporter_checks, monitor_checks, node_gpus
from podgpu.doctor.cluster.objects import Cluster
from podgpu.doctor.cluster.scheduling_rules import selector_text
from tests.podgpu.doctor.cluster.gpus import labelled
from tests.podgpu.doctor.cluster.objects import PRESENT, Raw, cluster, daemonset, pod, raw, taint
from tests.podgpu.doctor.cluster.odd import ODD, replaced
from tests.podgpu.doctor.cluster.scraping import EVERYTHING, PORT, SERVICE, monitor
from tests.podgpu.doctor.support import of

ALL = (
    daemonset_checks.check_daemonsets,
    node_gpus.check_nodes,
    monitor_checks.check_monitors,
    exporter_checks.check_exporters,
)


def test_a_healthy_cluster_is_well() -> None:
    found = [finding for look in ALL for finding in look(cluster())]
    assert [finding for finding in found if finding.fix] == []
    assert of(found, "cluster.daemonset").observed == "1 of 1 pods are ready"


def test_what_cannot_be_listed_is_skipped() -> None:
    found = [finding for look in ALL for finding in look(Cluster())]
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
LISTS: dict[str, Raw] = {
    "nodes": TAINTED,
    "daemonsets": FULL,
    "pods": pod(FULL, "gpu-1", {"reason": "a", "message": "b"}),
    "slices": raw("ResourceSlice", "s", spec={"nodeName": "gpu-1", "driver": "gpu.nvidia.com"}),
    "monitors": monitor(spec=PORT),
    "prometheuses": EVERYTHING,
    "services": SERVICE,
    "namespaces": raw("Namespace", "mon", labels={"team": "infra"}),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(LISTS)), st.lists(st.integers(0, 5), max_size=8), ODD)
def test_an_odd_object_costs_no_check(name: str, at: list[int], odd: Any) -> None:
    """The kind alone is podgpu's own word."""
    whole = {key: [each] for key, each in LISTS.items()}
    spoilt = replaced(LISTS[name], at, odd)
    kind = LISTS[name]["kind"]
    whole[name] = [*whole[name], {**(spoilt if isinstance(spoilt, dict) else {}), "kind": kind}]
    found = [finding for look in ALL for finding in look(cluster(**whole))]
    assert {finding.check for finding in found} >= {"cluster.daemonset", "cluster.gpus"}
    for each in whole["daemonsets"]:
        assert isinstance(selector_text(each.get("spec")), str)
