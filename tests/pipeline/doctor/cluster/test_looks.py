"""Each check of a cluster, provoked on objects as an API server has them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.doctor.cluster import daemonsets, exporters, monitors, nodes
from pipeline.doctor.cluster.nodes import has_gpus
from pipeline.doctor.cluster.objects import Cluster, exporter
from pipeline.doctor.cluster.selecting import selector_text
from pipeline.doctor.findings import Verdict
from tests.pipeline.doctor.cluster.objects import (
    PRESENT,
    Raw,
    cluster,
    daemonset,
    node,
    pod,
    raw,
    taint,
)
from tests.pipeline.doctor.support import is_bad, of

DCGM = "nvcr.example/nvidia/k8s/dcgm-exporter:4.2"
ALL = (daemonsets.look, nodes.look, monitors.look, exporters.look)


def test_a_healthy_cluster_is_well() -> None:
    found = [finding for look in ALL for finding in look(cluster())]
    assert [finding for finding in found if finding.mend] == []
    assert of(found, "cluster.daemonset").saw == "1 of 1 pods are ready"


def test_what_cannot_be_listed_is_skipped() -> None:
    found = [finding for look in ALL for finding in look(Cluster())]
    assert {finding.verdict for finding in found} == {Verdict.SKIPPED}


# -- cluster.daemonset ---------------------------------------------------------------------------


def test_no_daemonset_at_all() -> None:
    told = of(daemonsets.look(cluster(daemonsets=[])), "cluster.daemonset")
    is_bad(told, "failure", "none in any namespace", "helm install")
    elsewhere = of(daemonsets.look(cluster(namespace="gpu")), "cluster.daemonset")
    is_bad(elsewhere, "failure", "none in gpu", "--namespace")


SELECTS = {"nodeSelector": {PRESENT: "true"}}
WANTS_NONE: list[tuple[Raw, Raw, str, str]] = [
    (
        SELECTS,
        node(),
        f"1 nodes with GPUs: nodeSelector wants {PRESENT}=true, and it has no such label (1 of 1)",
        f"kubectl label node gpu-1 {PRESENT}=true",
    ),
    (
        SELECTS,
        node("cpu-1", None),
        "on 1 nodes, of which none says it has a GPU",
        "or change nodeSelector",
    ),
    (
        {},
        node(taints=(taint("nvidia.com/gpu", value="present"),)),
        "the taint nvidia.com/gpu=present:NoSchedule",
        "add the toleration {key: nvidia.com/gpu, operator: Exists}",
    ),
    ({}, node(), "nothing keeps them off", "kubectl describe"),
]


@pytest.mark.parametrize(("spec", "on", "saw", "mend"), WANTS_NONE)
def test_zero_pods_desired_and_why(spec: Raw, on: Raw, saw: str, mend: str) -> None:
    made = cluster(daemonsets=[daemonset(desired=0, spec=spec)], nodes=[on], pods=[])
    is_bad(of(daemonsets.look(made), "cluster.daemonset"), "failure", saw, mend)


def test_zero_pods_and_no_node_to_be_seen() -> None:
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=None)
    told = of(daemonsets.look(made), "cluster.daemonset")
    is_bad(told, "failure", "no node can be seen", "may list nodes")


def test_nodes_that_are_left_out_are_told_by_the_reason_and_counted() -> None:
    taints = [taint("a")] * 40 + [taint("b")] * 2 + [taint("c"), taint("d"), taint("e")]
    far = [node(f"far-{at}", taints=(each,)) for at, each in enumerate(taints)]
    found = daemonsets.look(cluster(nodes=[node(), *far]))
    told = [each for each in found if each.check == "cluster.daemonset"]
    is_bad(
        told[0],
        "warning",
        "leaves out far-0, far-1, far-2 and 37 more, which have GPUs: it has the taint a:",
        "key: a, operator: Exists}; so for all 40 of them",
    )
    is_bad(told[1], "warning", "leaves out far-40, far-41, which have GPUs", "for all 2 of them")
    is_bad(told[2], "warning", "leaves out far-42, which has GPUs", "key: c")
    is_bad(told[3], "warning", "far-43, far-44 with GPUs for 2 further reasons", "look again")


def test_no_node_is_named_of_which_nobody_says_that_it_has_gpus() -> None:
    control = taint("node-role.kubernetes.io/control-plane")
    plain = [node(f"n{at}", None) for at in range(3)] + [node("cp", None, taints=(control,))]
    made = cluster(daemonsets=[daemonset(desired=0, spec=SELECTS)], nodes=plain, pods=[])
    told = of(daemonsets.look(made), "cluster.daemonset")
    is_bad(told, "failure", "(4 of 4)", "let node feature discovery or GPU feature discovery")
    assert "kubectl label node" not in told.mend
    assert "toleration" not in told.mend


def test_a_taint_alone_on_nodes_without_a_word_of_gpus() -> None:
    plain = [node("n0", None, taints=(taint("dedicated"),))]
    made = cluster(daemonsets=[daemonset(desired=0)], nodes=plain, pods=[])
    told = of(daemonsets.look(made), "cluster.daemonset")
    is_bad(told, "failure", "taint dedicated", "where those have this taint, add the toleration")


def test_a_gpu_node_that_is_left_out_is_named() -> None:
    far = node("gpu-2", taints=(taint("dedicated"),))
    told = of(daemonsets.look(cluster(nodes=[node(), far])), "cluster.daemonset")
    is_bad(told, "warning", "leaves out gpu-2, which has GPUs", "key: dedicated")


WAITING = [
    ({"reason": "CrashLoopBackOff", "message": "back-off 5m"}, "CrashLoopBackOff back-off 5m"),
    ({"reason": "CreateContainerError", "message": ""}, "podgpu-gpu-1 CreateContainerError"),
]


@pytest.mark.parametrize(("waiting", "saw"), WAITING)
def test_pods_that_do_not_become_ready(waiting: Raw, saw: str) -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", waiting)])
    told = of(daemonsets.look(made), "cluster.daemonset")
    is_bad(told, "warning", f"0 of 1 pods are ready: podgpu-gpu-1 {waiting['reason']}", "describe")
    assert saw in told.saw


def test_many_pods_that_wait_are_counted() -> None:
    ours = daemonset(desired=9, ready=0)
    pods = [pod(ours, f"n{at}", WAITING[1][0]) for at in range(9)]
    told = of(daemonsets.look(cluster(daemonsets=[ours], pods=pods)), "cluster.daemonset")
    is_bad(told, "warning", "podgpu-n2 CreateContainerError; and 6 more", "describe")


def test_a_pod_that_waits_for_its_node() -> None:
    ours = daemonset(ready=0)
    made = cluster(daemonsets=[ours], pods=[pod(ours, "gpu-1", phase="Pending")])
    assert "is Pending" in of(daemonsets.look(made), "cluster.daemonset").saw


# -- cluster.runtimeclass ------------------------------------------------------------------------


def test_a_runtime_class_that_is_not_there() -> None:
    ours = daemonset(spec={"runtimeClassName": "nvidia"})
    well = of(daemonsets.look(cluster(daemonsets=[ours])), "cluster.runtimeclass")
    assert well.verdict is Verdict.OK
    others = [raw("RuntimeClass", "gvisor"), raw("RuntimeClass", "crun")]
    made = cluster(daemonsets=[ours], runtimeclasses=others)
    told = of(daemonsets.look(made), "cluster.runtimeclass")
    is_bad(told, "failure", "there is none; those there are: crun, gvisor", "make a RuntimeClass")
    unknown = of(
        daemonsets.look(cluster(daemonsets=[ours], runtimeclasses=None)), "cluster.runtimeclass"
    )
    assert unknown.verdict is Verdict.SKIPPED


# -- cluster.gpus --------------------------------------------------------------------------------


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
    (offering({"nvidia.com/gpu": "9" * 5000}), False),
]


@pytest.mark.parametrize(("made", "has"), LABELS)
def test_a_node_has_gpus_by_labels_or_by_what_it_offers(made: Raw, has: bool) -> None:
    assert has_gpus(made) is has


def labelled(
    gpus: int | None, allocatable: int | None = None, more: dict[str, str] | None = None
) -> Raw:
    made = node("gpu-1", gpus, allocatable=allocatable)
    made["metadata"]["labels"] = {PRESENT: "true", **(more or {})}
    return made


COUNT = {"nvidia.com/gpu.count": "8"}
SHARED = {**COUNT, "nvidia.com/gpu.replicas": "2"}
OFFERS: list[tuple[Raw, str, str]] = [
    (labelled(None), "has GPUs by its labels, and offers none", "the device plugin's pod"),
    (labelled(0), "offers none", "the device plugin's pod"),
    (labelled(8, 6), "allocatable are 6 of 8 nvidia.com/gpu", "unhealthy devices"),
    (labelled(7, None, COUNT), "offers 7 of 8 GPUs", "fallen off the bus"),
    (labelled(8, None, COUNT), "", ""),
    (labelled(7, None, SHARED), "", ""),
    (labelled(7, None, {"nvidia.com/gpu.count": "\u00b2"}), "", ""),
]


@pytest.mark.parametrize(("made", "saw", "mend"), OFFERS)
def test_what_a_node_offers_of_its_gpus(made: Raw, saw: str, mend: str) -> None:
    told = of(nodes.look(cluster(nodes=[made])), "cluster.gpus")
    if not saw:
        assert told.verdict is Verdict.OK, told
        return
    is_bad(told, "warning", saw, mend)
    assert told.looked_at == "Node gpu-1"


def test_nodes_with_the_same_fault_are_one_finding() -> None:
    made = [labelled(None) for _ in range(50)] + [labelled(8, 6), labelled(8)]
    for at, each in enumerate(made):
        each["metadata"]["name"] = f"n{at}"
    told = nodes.look(cluster(nodes=made))
    assert [each.looked_at for each in told] == ["Nodes n0, n1, n2 and 47 more", "Node n50"]
    is_bad(told[0], "warning", "offers none to pods", "the device plugin's pod")
    well = of(nodes.look(cluster(nodes=made[-1:] * 9)), "cluster.gpus")
    assert well.saw.endswith("; and 4 more")


def test_gpus_that_a_dra_driver_hands_out_are_offered() -> None:
    slices = [raw("ResourceSlice", "s", spec={"nodeName": "gpu-1", "driver": "gpu.nvidia.com"})]
    told = of(nodes.look(cluster(nodes=[labelled(None)], slices=slices)), "cluster.gpus")
    assert told.verdict is Verdict.OK
    assert "gpu-1 by claims" in told.saw


def test_no_node_with_gpus() -> None:
    told = of(nodes.look(cluster(nodes=[node("cpu-1", None)])), "cluster.gpus")
    is_bad(told, "warning", "none of 1 says it has a GPU", "feature discovery")


# -- cluster.servicemonitor ----------------------------------------------------------------------

OURS = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}


def monitor(
    kind: str = "ServiceMonitor", namespace: str = "mon", spec: Raw | None = None, **labels: str
) -> Raw:
    return raw(kind, "gpu", namespace, labels=labels, spec={"selector": OURS, **(spec or {})})


def prometheus(namespace: str = "prom", **spec: Any) -> Raw:
    return raw("Prometheus", "main", namespace, spec=spec)


TAKES: list[tuple[Raw, Raw]] = [
    (monitor(), prometheus(serviceMonitorSelector={}, serviceMonitorNamespaceSelector={})),
    (
        monitor(namespace="prom", spec={"namespaceSelector": {"any": True}}),
        prometheus(serviceMonitorSelector={}),
    ),
    (
        monitor(release="kps"),
        prometheus(
            serviceMonitorSelector={"matchLabels": {"release": "kps"}},
            serviceMonitorNamespaceSelector={"matchLabels": {"team": "infra"}},
        ),
    ),
    (
        monitor("PodMonitor"),
        prometheus(podMonitorSelector={}, podMonitorNamespaceSelector={}),
    ),
]


@pytest.mark.parametrize(("made", "who"), TAKES)
def test_a_monitor_that_is_taken(made: Raw, who: Raw) -> None:
    told = of(monitors.look(cluster(monitors=[made], prometheuses=[who])), "cluster.servicemonitor")
    assert told.verdict is Verdict.OK, told
    assert told.saw == "taken by Prometheus prom/main"


REFUSES: list[tuple[Raw, Raw, str, str]] = [
    (monitor(), prometheus(), "serviceMonitorSelector isn't set", "serviceMonitorSelector: {}"),
    (
        monitor(team="x"),
        prometheus(serviceMonitorSelector={"matchLabels": {"release": "kps"}}),
        "wants labels release=kps, and it has team=x",
        "additionalLabels: {release: kps}",
    ),
    (
        monitor(),
        prometheus(serviceMonitorSelector={}),
        "its own namespace alone",
        "the Prometheus' namespace",
    ),
    (
        monitor(),
        prometheus(
            serviceMonitorSelector={},
            serviceMonitorNamespaceSelector={"matchLabels": {"team": "ml"}},
        ),
        "wants namespaces with labels team=ml, which mon has not",
        "give its namespace the labels",
    ),
    (
        monitor("PodMonitor"),
        prometheus(serviceMonitorSelector={}, serviceMonitorNamespaceSelector={}),
        "podMonitorSelector isn't set",
        "podMonitorSelector: {}",
    ),
]


@pytest.mark.parametrize(("made", "who", "saw", "mend"), REFUSES)
def test_a_monitor_that_no_prometheus_takes(made: Raw, who: Raw, saw: str, mend: str) -> None:
    told = of(monitors.look(cluster(monitors=[made], prometheuses=[who])), "cluster.servicemonitor")
    is_bad(told, "warning", saw, mend)
    assert "Prometheus prom/main" in told.saw


EVERYTHING = prometheus(
    serviceMonitorSelector={},
    serviceMonitorNamespaceSelector={},
    podMonitorSelector={},
    podMonitorNamespaceSelector={},
)
SERVICE = raw(
    "Service",
    "gpu",
    "mon",
    labels={"app.kubernetes.io/name": "podgpu"},
    spec={
        "selector": {"app.kubernetes.io/name": "podgpu"},
        "ports": [{"name": "metrics"}, {"port": 1}],
    },
)
PORT: Raw = {"endpoints": [{"port": "metrics"}]}
NAMED: Raw = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}
ELSEWHERE: Raw = {"namespaceSelector": {"matchNames": ["mon"]}}
FOREIGN = {**SERVICE, "spec": {"selector": {"app": "x"}, "ports": [{"name": "metrics"}]}}
LEADS: list[tuple[Raw, list[Raw], str, str]] = [
    (monitor(spec=PORT), [SERVICE], "", ""),
    (monitor(namespace="prom", spec={**PORT, **ELSEWHERE}), [SERVICE], "", ""),
    (monitor(namespace="prom", spec={"namespaceSelector": {"any": True}}), [SERVICE], "", ""),
    (monitor(spec={"endpoints": [{"targetPort": 9400}]}), [SERVICE], "", ""),
    (monitor(namespace="prom"), [SERVICE], "looks into other namespaces", "matchNames: [mon]"),
    (
        monitor(spec={"namespaceSelector": {"matchNames": ["a"]}}),
        [SERVICE],
        "other namespaces than podgpu's: mon",
        "matchNames: [mon]",
    ),
    (
        {
            **monitor(spec={"selector": {"matchLabels": {"app": "x"}}}),
            "metadata": {"name": "podgpu", "namespace": "mon"},
        },
        [SERVICE],
        "selects no Service of podgpu's",
        "labels of podgpu's Service",
    ),
    (monitor(), [], "selects no Service of podgpu's", "labels of podgpu's Service"),
    (monitor(), [FOREIGN], "selects no Service of podgpu's", "labels of podgpu's Service"),
    (
        monitor(spec={"endpoints": [{"port": "nosuch"}]}),
        [SERVICE],
        "names the port nosuch, and Service mon/gpu has metrics",
        "one of those of Service mon/gpu",
    ),
    (monitor("PodMonitor", spec={"podMetricsEndpoints": [{"port": "web"}]}), [], "", ""),
    (
        monitor("PodMonitor", spec={"podMetricsEndpoints": [{"port": "metrics"}]}),
        [],
        "names the port metrics, and DaemonSet mon/podgpu has web",
        "one of those of DaemonSet mon/podgpu",
    ),
    (
        {
            **monitor("PodMonitor", spec={"selector": {"matchLabels": {"app": "x"}}}),
            "metadata": {"name": "podgpu", "namespace": "mon"},
        },
        [],
        "selects no pod of podgpu's",
        "labels of podgpu's pods",
    ),
]


@pytest.mark.parametrize("row", LEADS, ids=lambda row: row[2])
@pytest.mark.parametrize("taken", [True, False], ids=["with a Prometheus", "without"])
def test_a_monitor_has_to_lead_to_podgpu(row: tuple[Raw, list[Raw], str, str], taken: bool) -> None:
    made, services, saw, mend = row
    ours = daemonset(spec={"containers": [{"image": "x/podgpu:1", "ports": [{"name": "web"}]}]})
    found = cluster(
        daemonsets=[ours],
        monitors=[made],
        services=services,
        prometheuses=[EVERYTHING] if taken else [],
    )
    told = of(monitors.look(found), "cluster.servicemonitor")
    if saw:
        is_bad(told, "warning", saw, mend)
    else:
        assert told.verdict is (Verdict.OK if taken else Verdict.SKIPPED), told


def test_monitors_of_others_are_none_of_podgpu_s() -> None:
    other = raw("ServiceMonitor", "etcd", "mon", spec={"selector": {"matchLabels": {"a": "b"}}})
    everything = raw("ServiceMonitor", "all", "mon", spec={"selector": {}})
    for found in ([other], [everything], []):
        told = of(
            monitors.look(cluster(monitors=found, prometheuses=[prometheus()])),
            "cluster.servicemonitor",
        )
        assert told.verdict is Verdict.SKIPPED
    alone = of(monitors.look(cluster(monitors=[monitor()])), "cluster.servicemonitor")
    assert alone.verdict is Verdict.SKIPPED


# -- cluster.exporters ---------------------------------------------------------------------------


def test_two_exporters_on_the_same_nodes() -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    apart = [pod(ours, "gpu-1"), pod(theirs, "gpu-2")]
    made = cluster(daemonsets=[ours, theirs], pods=apart)
    assert of(exporters.look(made), "cluster.exporters").verdict is Verdict.OK
    made = cluster(daemonsets=[ours, theirs], pods=[*apart, pod(theirs, "gpu-1")])
    told = of(exporters.look(made), "cluster.exporters")
    is_bad(
        told,
        "warning",
        "DaemonSet gpu/nvidia-dcgm-exporter and DaemonSet mon/podgpu are both on gpu-1",
        "dcgmExporter.enabled=false",
    )


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_no_second_exporter(phase: str) -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    pods = [pod(ours, "gpu-1"), pod(theirs, "gpu-1", phase=phase)]
    made = cluster(daemonsets=[ours, theirs], pods=pods)
    assert of(exporters.look(made), "cluster.exporters").verdict is Verdict.OK
    pods[1] = pod(theirs, "gpu-1")
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-01T08:00:00Z"
    assert of(exporters.look(made), "cluster.exporters").verdict is Verdict.OK


def test_exporters_on_many_nodes_are_counted() -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    pods = [pod(each, f"n{at}") for at in range(9) for each in (ours, theirs)]
    told = of(exporters.look(cluster(daemonsets=[ours, theirs], pods=pods)), "cluster.exporters")
    is_bad(told, "warning", "are both on n0, n1, n2 and 6 more", "remove one of them")


def test_podgpu_twice_on_the_same_nodes() -> None:
    a, b = daemonset(), daemonset("podgpu", "other")
    made = cluster(daemonsets=[a, b], pods=[pod(a, "gpu-1"), pod(b, "gpu-1")])
    told = of(exporters.look(made), "cluster.exporters")
    is_bad(told, "warning", "DaemonSet mon/podgpu and DaemonSet other/podgpu", "remove one of them")


EXPORTERS: list[tuple[Raw, str | None]] = [
    (daemonset(), "podgpu"),
    (daemonset("dcgm-exporter", image="podgpu:1"), "podgpu"),
    (daemonset("gpu", image=DCGM), "dcgm-exporter"),
    (daemonset("podgpu", image="mirror.example/x@sha256:00"), "podgpu"),
    (daemonset("dcgm-exporter", image="mirror.example/x"), "dcgm-exporter"),
    (daemonset("nvidia-device-plugin", image="x/k8s-device-plugin:1"), None),
    ({"kind": "DaemonSet"}, None),
]


@pytest.mark.parametrize(("made", "kind"), EXPORTERS)
def test_an_exporter_is_known_by_its_image_then_by_labels(made: Raw, kind: str | None) -> None:
    assert exporter(made) == kind


# -- whatever a server says ------------------------------------------------------------------------

ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just("9" * 5000)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(value: Any, at: list[int], odd: Any) -> Any:
    """Return an object with something odd in one place of it, or in its own place."""
    if not at or not isinstance(value, dict | list) or not value:
        return odd
    keys: Any = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[at[0] % len(keys)]
    made = dict(value) if isinstance(value, dict) else list(value)
    made[key] = replaced(value[key], at[1:], odd)
    return made


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
