"""The check `cluster.exporters`."""

import pytest

from pipeline.component.findings import Verdict
from podgpu.doctor.cluster import cluster_diagnosis
from podgpu.doctor.cluster.objects import exporter_kind
from tests.podgpu.doctor.cluster.objects import Raw, cluster, daemonset, pod
from tests.podgpu.doctor.support import is_bad, of

DCGM = "nvcr.example/nvidia/k8s/dcgm-exporter:4.2"


def test_two_exporters_on_the_same_node_are_a_warning() -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    pods = [pod(ours, "gpu-1"), pod(theirs, "gpu-2")]
    made = cluster(daemonsets=[ours, theirs], pods=pods)
    assert of(cluster_diagnosis.check_exporters(made), "cluster.exporters").verdict is Verdict.OK
    made = cluster(daemonsets=[ours, theirs], pods=[*pods, pod(theirs, "gpu-1")])
    finding = of(cluster_diagnosis.check_exporters(made), "cluster.exporters")
    is_bad(
        finding,
        "warning",
        "DaemonSet gpu/nvidia-dcgm-exporter and DaemonSet mon/podgpu both run on gpu-1",
        "dcgmExporter.enabled=false",
    )


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_ended_or_terminating_pod_is_no_second_exporter(phase: str) -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    pods = [pod(ours, "gpu-1"), pod(theirs, "gpu-1", phase=phase)]
    made = cluster(daemonsets=[ours, theirs], pods=pods)
    assert of(cluster_diagnosis.check_exporters(made), "cluster.exporters").verdict is Verdict.OK
    pods[1] = pod(theirs, "gpu-1")
    pods[1]["metadata"]["deletionTimestamp"] = "2026-11-01T08:00:00Z"
    assert of(cluster_diagnosis.check_exporters(made), "cluster.exporters").verdict is Verdict.OK


def test_of_many_nodes_with_two_exporters_some_are_named_and_the_rest_counted() -> None:
    ours, theirs = daemonset(), daemonset("nvidia-dcgm-exporter", "gpu", image=DCGM)
    pods = [pod(each, f"n{at}") for at in range(9) for each in (ours, theirs)]
    finding = of(
        cluster_diagnosis.check_exporters(cluster(daemonsets=[ours, theirs], pods=pods)),
        "cluster.exporters",
    )
    is_bad(finding, "warning", "both run on n0, n1, n2 and 6 more", "remove one of them")


def test_two_podgpu_daemonsets_on_the_same_node_are_a_warning() -> None:
    a, b = daemonset(), daemonset("podgpu", "other")
    made = cluster(daemonsets=[a, b], pods=[pod(a, "gpu-1"), pod(b, "gpu-1")])
    finding = of(cluster_diagnosis.check_exporters(made), "cluster.exporters")
    is_bad(
        finding,
        "warning",
        "DaemonSet mon/podgpu and DaemonSet other/podgpu",
        "remove one of them",
    )


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
def test_an_exporter_is_identified_by_its_image_and_then_by_its_labels(
    made: Raw, kind: str | None
) -> None:
    assert exporter_kind(made) == kind
