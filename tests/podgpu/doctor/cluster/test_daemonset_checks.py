"""`cluster.daemonset` and `cluster.runtimeclass`, provoked on objects as an API server has them."""

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


def test_no_daemonset_at_all() -> None:
    given_out = of(daemonset_checks.check_daemonsets(cluster(daemonsets=[])), "cluster.daemonset")
    is_bad(given_out, "failure", "none in any namespace", "helm install")
    elsewhere = of(daemonset_checks.check_daemonsets(cluster(namespace="gpu")), "cluster.daemonset")
    is_bad(elsewhere, "failure", "none in gpu", "--namespace")


SELECTS = {"nodeSelector": {PRESENT: "true"}}
WANTS_NONE: list[tuple[Raw, Raw, str, str]] = [
    (
        SELECTS,
        node(),
        f"1 nodes with GPUs: nodeSelector wants {PRESENT}=true, but the node has no such label",
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
    ({}, node(), "nothing prevents them", "kubectl describe"),
]


@pytest.mark.parametrize(("spec", "on", "saw", "repair"), WANTS_NONE)
def test_zero_pods_desired_and_why(spec: Raw, on: Raw, saw: str, repair: str) -> None:
    made = cluster(daemonsets=[daemonset(desired=0, spec=spec)], nodes=[on], pods=[])
    is_bad(of(daemonset_checks.check_daemonsets(made), "cluster.daemonset"), "failure", saw, repair)


def test_zero_pods_and_no_node_to_be_seen() -> None:
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=None)
    given_out = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(given_out, "failure", "no node is visible", "may list nodes")


def test_nodes_that_are_left_out_are_reported_by_the_reason_and_counted() -> None:
    taints = [taint("a")] * 40 + [taint("b")] * 2 + [taint("c"), taint("d"), taint("e")]
    far = [node(f"far-{at}", taints=(each,)) for at, each in enumerate(taints)]
    found = daemonset_checks.check_daemonsets(cluster(nodes=[node(), *far]))
    given_out = [each for each in found if each.check == "cluster.daemonset"]
    is_bad(
        given_out[0],
        "warning",
        "far-0, far-1, far-2 and 37 more, which have GPUs: the node has the taint a:",
        "key: a, operator: Exists}; the same for all 40 of them",
    )
    is_bad(
        given_out[1],
        "warning",
        "does not run on far-40, far-41, which have GPUs",
        "for all 2 of them",
    )
    is_bad(given_out[2], "warning", "does not run on far-42, which has GPUs", "key: c")
    is_bad(
        given_out[3],
        "warning",
        "far-43, far-44 with GPUs for 2 further reasons",
        "run podgpu doctor again",
    )


def test_no_node_is_named_of_which_no_one_says_that_it_has_gpus() -> None:
    control = taint("node-role.kubernetes.io/control-plane")
    plain = [node(f"n{at}", None) for at in range(3)] + [node("cp", None, taints=(control,))]
    made = cluster(daemonsets=[daemonset(desired=0, spec=SELECTS)], nodes=plain, pods=[])
    given_out = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(given_out, "failure", "(4 of 4)", "let node feature discovery or GPU feature discovery")
    assert "kubectl label node" not in given_out.fix
    assert "toleration" not in given_out.fix


def test_a_taint_alone_on_nodes_without_a_word_of_gpus() -> None:
    plain = [node("n0", None, taints=(taint("dedicated"),))]
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=plain, pods=[])
    given_out = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    is_bad(
        given_out,
        "failure",
        "taint dedicated",
        "if those nodes have this taint, add the toleration",
    )


def test_a_gpu_node_that_is_left_out_is_named() -> None:
    far = node("gpu-2", taints=(taint("dedicated"),))
    given_out = of(
        daemonset_checks.check_daemonsets(cluster(nodes=[node(), far])), "cluster.daemonset"
    )
    is_bad(given_out, "warning", "does not run on gpu-2, which has GPUs", "key: dedicated")


WAITING = [
    ({"reason": "CrashLoopBackOff", "message": "back-off 5m"}, "CrashLoopBackOff back-off 5m"),
    (
        {"reason": "CreateContainerError", "message": ""},
        "podgpu-gpu-1 on gpu-1 CreateContainerError",
    ),
]


@pytest.mark.parametrize(("waiting", "saw"), WAITING)
def test_pods_that_do_not_become_ready(waiting: Raw, saw: str) -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", waiting)])
    given_out = of(daemonset_checks.check_daemonsets(made), "cluster.daemonset")
    saw_first = f"0 of 1 pods are ready: podgpu-gpu-1 on gpu-1 {waiting['reason']}"
    is_bad(given_out, "warning", saw_first, "describe")
    assert saw in given_out.observed


def test_many_pods_that_wait_are_counted() -> None:
    ours = daemonset(desired=9, ready=0)
    pods = [pod(ours, f"n{at}", WAITING[1][0]) for at in range(9)]
    given_out = of(
        daemonset_checks.check_daemonsets(cluster(daemonsets=[ours], pods=pods)),
        "cluster.daemonset",
    )
    is_bad(given_out, "warning", "podgpu-n2 on n2 CreateContainerError; and 6 more", "describe")


def test_a_pod_that_waits_for_its_node() -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", phase="Pending")])
    assert "is Pending" in of(daemonset_checks.check_daemonsets(made), "cluster.daemonset").observed


def test_a_runtime_class_that_is_not_there() -> None:
    ours = daemonset(spec={"runtimeClassName": "nvidia"})
    well = of(daemonset_checks.check_daemonsets(cluster(daemonsets=[ours])), "cluster.runtimeclass")
    assert well.verdict is Verdict.OK
    others = [raw("RuntimeClass", "gvisor"), raw("RuntimeClass", "crun")]
    made = cluster(daemonsets=[ours], runtimeclasses=others)
    given_out = of(daemonset_checks.check_daemonsets(made), "cluster.runtimeclass")
    is_bad(
        given_out,
        "failure",
        "which does not exist; existing ones: crun, gvisor",
        "create a RuntimeClass",
    )
    unknown = of(
        daemonset_checks.check_daemonsets(cluster(daemonsets=[ours], runtimeclasses=None)),
        "cluster.runtimeclass",
    )
    assert unknown.verdict is Verdict.SKIPPED
