"""`podgpu doctor --cluster` on a real API server: missing objects, permissions and duplicates."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.doctor_runs import Answer, Finding, ask
from tests.e2e.helm import NAMESPACE, Helm
from tests.e2e.kube import access, nodes
from tests.e2e.kube.api import Api, ApiError, Object
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.pods import pod
from tests.e2e.processes import wait_until

SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
GPU_NODE = "gpu-1"
TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


class Objects:
    """DaemonSets and a node that exist only as API objects: no controller creates pods."""

    def __init__(self, api: Api, helm: Helm, kubeconfig: Path) -> None:
        self.api = api
        self._helm = helm
        self._kubeconfig = kubeconfig
        self._made: list[str] = []

    def make(self, where: str, made: Object) -> Object:
        found: Object = self.api.request("POST", where, made)
        self._made.append(f"{where}/{made['metadata']['name']}")
        return found

    def install(self, **values: Any) -> Object:
        """Create the chart's DaemonSet, which has no pods."""
        return self.make(SETS, self._helm.template(values).one("DaemonSet"))

    def extend(self) -> Object:
        """Create the chart's extender with its rules, and set its pods as ready."""
        chart = self._helm.template({"extender": {"enabled": True}})
        made = chart.one("Deployment")
        name = made["metadata"]["name"]
        role = next(
            each for each in chart.all("ClusterRole") if "extender" in str(each["metadata"])
        )
        binding = next(
            each
            for each in chart.all("ClusterRoleBinding")
            if each["roleRef"]["name"] == role["metadata"]["name"]
        )
        self.make(f"{RBAC}/clusterroles", role)
        self.make(f"{RBAC}/clusterrolebindings", binding)
        self.make(DEPLOYMENTS, made)
        count = made["spec"]["replicas"]
        status = {"replicas": count, "readyReplicas": count, "availableReplicas": count}
        self.api.request(
            "PATCH",
            f"{DEPLOYMENTS}/{name}/status",
            {"status": status},
            "application/merge-patch+json",
        )
        found: Object = role
        return found

    def desired(self, name: str, count: int) -> None:
        """Set the status like the controller: this many pods are wanted and ready."""
        status = {
            "currentNumberScheduled": count,
            "desiredNumberScheduled": count,
            "numberMisscheduled": 0,
            "numberReady": count,
            "updatedNumberScheduled": count,
        }
        self.api.request(
            "PATCH", f"{SETS}/{name}/status", {"status": status}, "application/merge-patch+json"
        )

    def node(self, **labels: str) -> None:
        """Create a node with eight GPUs."""
        nodes.add(self.api, GPU_NODE, {"nvidia.com/gpu": "8"})
        self.api.patch("Node", GPU_NODE, {"metadata": {"labels": labels}})

    def diagnose(self) -> Answer:
        return ask("--cluster", "--kubeconfig", self._kubeconfig)

    def found(self, check: str) -> list[Finding]:
        return [each for each in self.diagnose().findings if each.check == check]

    def is_well(self, check: str) -> bool:
        return [each.verdict for each in self.found(check)] == ["ok"]

    def failing(self, check: str) -> Finding | None:
        return next((each for each in self.found(check) if each.verdict == "failure"), None)

    def clear(self) -> None:
        for where in reversed(self._made):
            with suppress(ApiError):
                self.api.request("DELETE", where, {"propagationPolicy": "Background"})
        nodes.remove_all(self.api)


@pytest.fixture
def objects(cluster: Cluster, helm: Helm) -> Iterator[Objects]:
    access.add_namespace(cluster.api, NAMESPACE)
    made = Objects(cluster.api, helm, cluster.admin_kubeconfig)
    try:
        yield made
    finally:
        made.clear()


def test_a_cluster_without_podgpu_is_a_failure(objects: Objects) -> None:
    (found,) = objects.found("cluster.daemonset")
    assert found.verdict == "failure"
    assert "there is no DaemonSet of podgpu" in found.saw
    assert "helm install podgpu" in found.repair


def test_a_missing_gpu_node_label_is_reported(objects: Objects) -> None:
    objects.node(**{"example.com/gpu": "yes"})
    objects.install()
    (found,) = objects.found("cluster.daemonset")
    assert found.verdict == "failure"
    # The node of the tests may still have the resource of a stopped plugin.
    assert re.search(
        r"no pod is scheduled: on \d nodes with GPUs: affinity requires ", found.saw
    ), found.saw
    assert "nvidia.com/gpu.present In (true) or feature.node.kubernetes.io/pci-10de" in found.saw
    assert "give the node such labels" in found.repair


def test_a_node_selector_that_matches_no_node_is_reported(objects: Objects) -> None:
    objects.node(**{"nvidia.com/gpu.present": "true"})
    objects.install(nodeSelector={"pool": "gpu"})
    (found,) = objects.found("cluster.daemonset")
    assert "nodeSelector requires pool=gpu, but the node has no such label" in found.saw
    assert f"kubectl label node {GPU_NODE} pool=gpu" in found.repair


def test_a_taint_that_prevents_all_pods_is_reported(objects: Objects) -> None:
    objects.node(**{"nvidia.com/gpu.present": "true"})
    objects.api.patch("Node", GPU_NODE, {"spec": {"taints": [TAINT]}})
    objects.install()
    (found,) = objects.found("cluster.daemonset")
    assert "the node has the taint team=vision:NoSchedule" in found.saw
    assert "add the toleration {key: team, operator: Exists}" in found.repair


def test_a_missing_runtime_class_is_reported(objects: Objects) -> None:
    objects.node(**{"nvidia.com/gpu.present": "true"})
    objects.install(runtimeClassName="nvidia")
    (found,) = objects.found("cluster.runtimeclass")
    assert found.verdict == "failure"
    assert "names the RuntimeClass nvidia, which does not exist" in found.saw
    assert "create a RuntimeClass nvidia" in found.repair
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
    objects.make(CLASSES, {**made, "metadata": {"name": "nvidia"}})
    (found,) = objects.found("cluster.runtimeclass")
    assert found.verdict == "ok"


def test_the_doctor_reports_a_missing_permission_of_the_extender(
    objects: Objects,
) -> None:
    role = objects.extend()
    name = role["metadata"]["name"]
    verbs = [(rule, verb) for rule in role["rules"] for verb in rule["verbs"]]
    assert verbs
    wait_until(
        lambda: objects.is_well("cluster.extender"), "the extender's permissions are in force"
    )
    for rule, verb in verbs:
        less = {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}
        others = [each for each in role["rules"] if each is not rule]
        objects.api.patch("ClusterRole", name, {"rules": [less, *others]})
        found = wait_until(
            lambda: objects.failing("cluster.extender"), "the reduced permissions are in force"
        )
        (resource,) = rule["resources"]
        account = f"the service account {NAMESPACE}/podgpu-extender"
        assert found.saw == f"{account} may not {verb} {resource}"
        assert f'resources ["{resource}"], verbs [{verb}]' in found.repair
        objects.api.patch("ClusterRole", name, {"rules": role["rules"]})
        wait_until(
            lambda: objects.is_well("cluster.extender"), "all permissions are in force again"
        )


def dcgm_exporter() -> Object:
    labels = {"app": "nvidia-dcgm-exporter"}
    container = {"name": "dcgm-exporter", "image": "nvidia/dcgm-exporter:4.5.0"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "dcgm-exporter", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_two_exporters_on_one_node_are_reported(objects: Objects) -> None:
    objects.node(**{"nvidia.com/gpu.present": "true"})
    for at, made in enumerate((objects.install(), objects.make(SETS, dcgm_exporter()))):
        objects.desired(made["metadata"]["name"], 1)
        labels = made["spec"]["template"]["metadata"]["labels"]
        (alone,) = objects.found("cluster.exporters")
        assert alone.verdict == "ok", "one GPU exporter"
        placed = pod(f"exporter-{at}", namespace=NAMESPACE, labels=labels)
        placed["spec"]["nodeName"] = GPU_NODE
        placed["metadata"]["ownerReferences"] = [
            {
                "apiVersion": made["apiVersion"],
                "kind": made["kind"],
                "name": made["metadata"]["name"],
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
        ]
        objects.api.create(placed)
    (found,) = objects.found("cluster.exporters")
    assert found.verdict == "warning"
    assert f"DaemonSet {NAMESPACE}/dcgm-exporter and DaemonSet {NAMESPACE}/podgpu" in found.saw
    assert f"both run on {GPU_NODE}" in found.saw
    assert "remove one of them" in found.repair


def test_a_healthy_cluster_has_no_findings(objects: Objects, kube: Cluster) -> None:
    label = "nvidia.com/gpu.present"
    kube.plugin(["GPU-0", "GPU-1"])
    kube.api.patch("Node", kube.node, {"metadata": {"labels": {label: "true"}}})
    try:
        made = objects.install()
        objects.desired(made["metadata"]["name"], 1)
        answer = objects.diagnose()
    finally:
        kube.api.patch("Node", kube.node, {"metadata": {"labels": {label: None}}})
    assert [str(each) for each in answer.bad()] == []
    assert answer.status == 0


def test_a_user_without_permissions_gets_a_finding_for_each_rule(
    objects: Objects, cluster: Cluster, tmp_path: Path
) -> None:
    few = access.account(tmp_path, cluster.api, "podgpu-few", [])
    try:
        answer = ask("--cluster", "--kubeconfig", few)
    finally:
        access.remove_service_account(cluster.api, "podgpu-few")
    server_findings = [each for each in answer.findings if each.check == "cluster.server"]
    resources = ("nodes", "daemonsets", "deployments", "runtimeclasses", "namespaces")
    assert {each.verdict for each in server_findings} == {"warning"}, json.dumps(
        [str(e) for e in server_findings]
    )
    for resource in resources:
        assert any(
            f'resources ["{resource}"], verbs [list]' in each.repair for each in server_findings
        )
