"""Effects of the chart's values."""

import json
from typing import Any

import pytest

from tests.deploy.places import CHART
from tests.e2e.charts import Values, rule, sink, source
from tests.e2e.helm import Helm


def test_sources_have_the_order_of_the_preset_or_of_source_order(helm: Helm) -> None:
    """Values have no order, but the order of sources in podgpu's configuration matters."""
    more = source("a-page", kind="dcgm", url="http://localhost:9401/metrics")
    assert list(helm.template(more).config().sources) == [
        "gpus",
        "a-page",
        "checkpoint",
        "kubelet",
        "pods",
    ]
    chosen = helm.template({**more, "sourceOrder": ["a-page", "pods"]})
    assert list(chosen.config().sources)[:3] == ["a-page", "pods", "gpus"]


def test_another_kind_replaces_the_whole_component(helm: Helm) -> None:
    made = helm.template({"preset": "koordinator", **source("kubelet", kind="podlist")})
    assert made.config().sources["kubelet"].kind == "podlist"
    assert "/var/run/koordlet/pod-resources" not in made.mounts


def test_podgpu_listens_for_probes_without_a_prometheus_sink(helm: Helm) -> None:
    """Without a listening sink, podgpu listens only for health checks."""
    made = helm.template({"config": {"sinks": {"metrics": None, "lines": {"kind": "jsonl"}}}})
    listen = made.config().http.listen
    assert listen is not None
    assert listen.port == made.container["ports"][0]["containerPort"]


@pytest.mark.parametrize(
    ("values", "port"),
    [
        (source("gpus", interval="1s"), 9400),
        (sink("metrics", listen="127.0.0.1:9500"), 9500),
        ({"arguments": ["-c", "1000"], "service": {"address": ":9600"}}, 9600),
    ],
    ids=str,
)
def test_the_container_port_is_that_of_the_configuration(
    helm: Helm, values: Values, port: int
) -> None:
    assert helm.template(values).container["ports"][0]["containerPort"] == port


_DEBIAN = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("values", "library"),
    [
        ({"driverRoot": "/run/nvidia/driver"}, f"/run/nvidia/driver{_DEBIAN}"),
        ({"driverRoot": "/"}, _DEBIAN),
        ({"distribution": "gke"}, "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1"),
        (
            {"distribution": "gke", "driverRoot": "/home/kubernetes/bin/nvidia"},
            "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
        ),
        ({"distribution": "gke", "driverRoot": "/x"}, f"/x{_DEBIAN}"),
        ({"driverRoot": "/x", "driverLibrary": "/a/b.so"}, "/x/a/b.so"),
    ],
    ids=str,
)
@pytest.mark.parametrize("end", ["", "/"], ids=["", "trailing slash"])
def test_a_trailing_slash_of_the_driver_root_is_ignored(
    helm: Helm, values: Values, library: str, end: str
) -> None:
    root = values.get("driverRoot")
    given = values if root in (None, "/") else {**values, "driverRoot": f"{root}{end}"}
    mounts = helm.template({"preset": "gpus", **given}).mounts
    assert mounts == {"/opt/podgpu-driver/libnvidia-ml.so.1": (library, True)}


@pytest.mark.parametrize(
    ("grace", "seconds"), [(None, 15), ("0s", 5), ("1m30s", 95), ("1500ms", 7), ("0.5h", 1805)]
)
def test_the_termination_grace_period_covers_the_shutdown_grace(
    helm: Helm, grace: str | None, seconds: int
) -> None:
    values = {"config": {"shutdown_grace": grace}} if grace else {}
    assert helm.template(values).pod["terminationGracePeriodSeconds"] == seconds


def test_pods_run_only_on_gpu_nodes(helm: Helm) -> None:
    def keys(values: Values) -> set[str]:
        affinity = helm.template(values).pod.get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
        return {term["matchExpressions"][0]["key"] for term in terms.get("nodeSelectorTerms", [])}

    usual = {"nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"}
    assert usual <= keys({})
    assert "cloud.google.com/gke-accelerator" in keys({"distribution": "gke"})
    assert keys({"gpuNodesOnly": False}) == set()
    assert keys({"nodeSelector": {"node": "gpu"}}) == set()
    (taint,) = helm.template().pod["tolerations"]
    assert taint == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def test_a_quota_for_the_priority_class_is_created_where_needed(helm: Helm) -> None:
    def made(**values: Any) -> int:
        return len(helm.template(values).all("ResourceQuota"))

    assert made() == 0
    assert made(distribution="gke") == 1
    assert made(distribution="gke", namespaceOverride="kube-system") == 0
    assert made(distribution="gke", priorityClassName="") == 0
    assert made(criticalQuota=True) == 1


def test_openshift_constraints_are_minimal(helm: Helm) -> None:
    made = helm.template({"distribution": "openshift"})
    constraints = made.one("SecurityContextConstraints")
    assert constraints["allowPrivilegedContainer"] is False
    assert constraints["allowedCapabilities"] == []
    assert constraints["allowHostDirVolumePlugin"] is True
    assert constraints["users"] == ["system:serviceaccount:podgpu:podgpu"]
    assert made.container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    bare = helm.template({"distribution": "openshift", "preset": "gpus"})
    assert bare.one("SecurityContextConstraints")["allowHostDirVolumePlugin"] is False
    assert "seLinuxOptions" not in bare.container["securityContext"]


def test_objects_of_unknown_kinds_are_not_rendered(helm: Helm) -> None:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    assert not helm.template().kinds() & kinds
    group = "monitoring.coreos.com/v1"
    apis = [word for kind in sorted(kinds) for word in ("--api-versions", f"{group}/{kind}")]
    assert helm.template({}, *apis).kinds() >= kinds
    assert "PodMonitor" in helm.template({"podMonitor": {"enabled": True}}, *apis).kinds()
    assert "ServiceMonitor" not in helm.template({"podMonitor": {"enabled": True}}, *apis).kinds()


def test_the_service_monitor_keeps_labels_of_podgpu(helm: Helm) -> None:
    made = helm.template(
        {
            "serviceMonitor": {
                "enabled": True,
                "interval": "30s",
                "additionalLabels": {"release": "prometheus"},
                "relabelings": [{"action": "replace", "targetLabel": "cluster"}],
            },
            **sink("metrics", path="/page"),
        }
    ).one("ServiceMonitor")
    (endpoint,) = made["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert (endpoint["port"], endpoint["path"], endpoint["scheme"]) == ("metrics", "/page", "http")
    assert endpoint["interval"] == "30s"
    assert endpoint["relabelings"] == [
        # The node label, which alerts use.
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        {"action": "replace", "targetLabel": "cluster"},
    ]
    assert made["metadata"]["labels"]["release"] == "prometheus"


def test_the_config_maps_contain_the_dashboard_files(helm: Helm) -> None:
    """Their file names contain podgpu, because Grafana's sidecar puts all dashboards into one
    folder."""
    files = {
        f"podgpu-{path.name}": path.read_text() for path in CHART.glob("files/dashboards/*.json")
    }
    values: Values = {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}}}
    made = [
        each
        for each in helm.template(values).all("ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
    ]
    found = {name: text for each in made for name, text in each["data"].items()}
    assert {name: json.loads(text) for name, text in found.items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    assert all(each["metadata"]["annotations"]["grafana_folder"] == "GPUs" for each in made)


def test_the_extender_may_only_read_nodes(helm: Helm) -> None:
    made = helm.template({"extender": {"enabled": True, "arguments": ["--timeout", "2s"]}})
    role = made.one("ClusterRole", "podgpu.podgpu-extender")
    assert role["rules"] == [rule("nodes", "list", "watch")]
    spec = made.one("Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["extender", "--listen", ":9410", "--timeout", "2s"]
    assert container["securityContext"]["runAsNonRoot"] is True
    chosen = made.one("Service", "podgpu-extender")["spec"]["selector"]
    assert chosen["app.kubernetes.io/component"] == "extender"
    assert made.one("Service", "podgpu")["spec"]["selector"] != chosen


def test_explicit_privileges_are_applied(helm: Helm) -> None:
    """Fields that the API server refuses together with `privileged` are absent."""
    made = helm.template({"securityContext": {"privileged": True, "seccompProfile": None}})
    context = made.container["securityContext"]
    assert context["privileged"] is True
    assert "allowPrivilegeEscalation" not in context
    assert "seccompProfile" not in context


def test_a_changed_configuration_restarts_the_pods(helm: Helm) -> None:
    def checksum(**values: Any) -> str | None:
        spec = helm.template(values).one("DaemonSet")["spec"]["template"]
        found: str | None = spec["metadata"]["annotations"].get("checksum/config")
        return found

    assert checksum() == checksum(podLabels={"a": "b"})
    assert checksum() != checksum(config={"log": {"level": "debug"}})
    assert checksum(configChecksum=False) is None
