"""The checks `cluster.daemonset` and `cluster.runtimeclass`."""

import pytest

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import daemonset_checks
from tests.podgpu.doctor.cluster.objects import (
    PRESENT,
    Raw,
    cluster,
    daemonset,
    node,
    pod,
    raw,
    taint,
)
from tests.podgpu.doctor.support import is_bad, of


def test_a_cluster_without_a_daemonset_is_a_failure() -> None:
    finding = of(daemonset_checks.check_daemonsets(cluster(daemonsets=[])), "cluster.daemonset")
    is_bad(finding, "failure", "no DaemonSet of podgpu in any namespace", "helm install")
    elsewhere = of(daemonset_checks.check_daemonsets(cluster(namespace="gpu")), "cluster.daemonset")
    is_bad(elsewhere, "failure", "no DaemonSet of podgpu in gpu", "--namespace")


SELECTS = {"nodeSelector": {PRESENT: "true"}}
NO_PODS_WANTED: list[tuple[Raw, Raw, str, str]] = [
    (
        SELECTS,
        node(),
        f"1 nodes with GPUs: nodeSelector requires {PRESENT}=true, but the node has no such label",
        f"kubectl label node gpu-1 {PRESENT}=true",
    ),
    (
        SELECTS,
        node("cpu-1", None),
        "on 1 nodes, none of which reports a GPU",
        "or change nodeSelector",
    ),
    (
        {},
        node(taints=(taint("nvidia.com/gpu", value="present"),)),
        "the taint nvidia.com/gpu=present:NoSchedule",
        "add the toleration {key: nvidia.com/gpu, operator: Exists}",
    ),
    ({}, node(), "nothing prevents it", "kubectl describe"),
]


@pytest.mark.parametrize(("spec", "on", "observed", "fix"), NO_PODS_WANTED)
def test_a_daemonset_that_wants_no_pods_is_a_failure_with_the_reason(
    spec: Raw, on: Raw, observed: str, fix: str
) -> None:
    made = cluster(daemonsets=[daemonset(desired=0, spec=spec)], nodes=[on], pods=[])
    is_bad(
        of(daemonset_checks.check_daemonsets(made), "cluster.daemonset"), "failure", observed, fix
    )


def test_a_daemonset_that_wants_no_pods_is_a_failure_if_no_node_is_visible() -> None:
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=None)
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(finding, "failure", "no node is visible", "may list nodes")


def test_excluded_nodes_are_grouped_by_reason_and_counted() -> None:
    taints = [taint("a")] * 40 + [taint("b")] * 2 + [taint("c"), taint("d"), taint("e")]
    far = [node(f"far-{at}", taints=(each,)) for at, each in enumerate(taints)]
    found = daemonset_checks.check_daemonsets(cluster(nodes=[node(), *far]))
    findings = [each for each in found if each.check == "cluster.daemonset"]
    is_bad(
        findings[0],
        "warning",
        "far-0, far-1, far-2 and 37 more, which have GPUs: the node has the taint a:",
        "key: a, operator: Exists}; the same for all 40 of them",
    )
    is_bad(
        findings[1],
        "warning",
        "does not run on far-40, far-41, which have GPUs",
        "for all 2 of them",
    )
    is_bad(findings[2], "warning", "does not run on far-42, which has GPUs", "key: c")
    is_bad(
        findings[3],
        "warning",
        "far-43, far-44 with GPUs for 2 further reasons",
        "run podgpu doctor again",
    )


def test_nodes_that_do_not_report_gpus_are_not_named() -> None:
    control_plane_taint = taint("node-role.kubernetes.io/control-plane")
    plain = [node(f"n{at}", None) for at in range(3)] + [
        node("cp", None, taints=(control_plane_taint,))
    ]
    made = cluster(daemonsets=[daemonset(desired=0, spec=SELECTS)], nodes=plain, pods=[])
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(finding, "failure", "(4 of 4)", "let node feature discovery or GPU feature discovery")
    assert "kubectl label node" not in finding.fix
    assert "toleration" not in finding.fix


def test_a_taint_on_nodes_that_do_not_report_gpus_has_a_conditional_fix() -> None:
    plain = [node("n0", None, taints=(taint("dedicated"),))]
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=plain, pods=[])
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(
        finding,
        "failure",
        "taint dedicated",
        "if those nodes have this taint, add the toleration",
    )


def test_an_excluded_gpu_node_is_named() -> None:
    far = node("gpu-2", taints=(taint("dedicated"),))
    finding = of(
        daemonset_checks.check_daemonsets(cluster(nodes=[node(), far])), "cluster.daemonset"
    )
    is_bad(finding, "warning", "does not run on gpu-2, which has GPUs", "key: dedicated")


WAITING = [
    ({"reason": "CrashLoopBackOff", "message": "back-off 5m"}, "CrashLoopBackOff back-off 5m"),
    (
        {"reason": "CreateContainerError", "message": ""},
        "podgpu-gpu-1 on gpu-1 CreateContainerError",
    ),
]


@pytest.mark.parametrize(("waiting", "observed"), WAITING)
def test_pods_that_are_not_ready_are_named_with_the_reason(waiting: Raw, observed: str) -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", waiting)])
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    beginning = f"0 of 1 pods are ready: podgpu-gpu-1 on gpu-1 {waiting['reason']}"
    is_bad(finding, "warning", beginning, "describe")
    assert observed in finding.observed


def test_of_many_waiting_pods_some_are_named_and_the_rest_counted() -> None:
    ours = daemonset(desired=9, ready=0)
    pods = [pod(ours, f"n{at}", WAITING[1][0]) for at in range(9)]
    finding = of(
        daemonset_checks.check_daemonsets(cluster(daemonsets=[ours], pods=pods)),
        "cluster.daemonset",
    )
    is_bad(finding, "warning", "podgpu-n2 on n2 CreateContainerError; and 6 more", "describe")


def test_a_pending_pod_is_reported_as_pending() -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", phase="Pending")])
    assert "is Pending" in of(daemonset_checks.check_daemonsets(made), "cluster.daemonset").observed


def test_a_missing_runtime_class_is_a_failure_and_existing_ones_are_named() -> None:
    ours = daemonset(spec={"runtimeClassName": "nvidia"})
    well = of(daemonset_checks.check_daemonsets(cluster(daemonsets=[ours])), "cluster.runtimeclass")
    assert well.verdict is Verdict.OK
    others = [raw("RuntimeClass", "gvisor"), raw("RuntimeClass", "crun")]
    made = cluster(daemonsets=[ours], runtimeclasses=others)
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.runtimeclass")
    is_bad(
        finding,
        "failure",
        "which does not exist; existing ones: crun, gvisor",
        "create a RuntimeClass",
    )
    unknown = of(
        daemonset_checks.check_daemonsets(cluster(daemonsets=[ours], runtimeclasses=None)),
        "cluster.runtimeclass",
    )
    assert unknown.verdict is Verdict.SKIPPED


def test_a_node_is_not_excluded_while_its_pod_is_not_created_yet() -> None:
    ours = daemonset(desired=2, ready=1)
    ours["status"]["currentNumberScheduled"] = 1
    far = node("gpu-2", taints=(taint("dedicated"),))
    made = cluster(daemonsets=[ours], nodes=[node(), far])
    finding = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(finding, "warning", "1 of 2 pods are ready: 1 are not created", "describe daemonset")
