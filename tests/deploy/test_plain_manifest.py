"""The plain manifest, deploy/podgpu.yaml.

`tests/e2e/test_chart.py` checks with helm that the chart renders the same manifest.
"""

from tests.deploy.manifests import Manifests, documented
from tests.deploy.places import DOCS, PLAIN

SHIPPED = Manifests(PLAIN.read_text(encoding="utf-8"))


def test_the_kinds_of_objects() -> None:
    assert SHIPPED.kinds() == {
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "ClusterRole",
        "ClusterRoleBinding",
        "Service",
        "DaemonSet",
    }


def test_the_configuration_is_valid() -> None:
    config = SHIPPED.config()
    assert next(iter(config.sources)) == "gpus"
    assert {each.kind for each in config.sources.values()} == {
        "nvml",
        "podresources",
        "pods",
        "checkpoint",
    }


def test_the_rbac_rules_are_those_that_the_sources_document() -> None:
    assert SHIPPED.rules == documented(DOCS / "sources" / "pods.md")


def test_each_host_folder_has_a_reason_and_is_read_only() -> None:
    folders = {folder.path: folder.why for folder in SHIPPED.host_folders()}
    assert set(folders) == {"/var/lib/kubelet/pod-resources", "/var/lib/kubelet/device-plugins"}
    assert all(why and why[0].startswith("source ") for why in folders.values())
    assert all(read_only for _, read_only in SHIPPED.mounts.values())


def test_the_container_runs_as_root_without_privileges() -> None:
    context = SHIPPED.container["securityContext"]
    assert context == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "privileged: true" not in SHIPPED.text
    assert not {"hostPID", "hostNetwork", "hostIPC"} & SHIPPED.pod.keys()


def test_the_port_is_named_metrics_everywhere() -> None:
    (port,) = SHIPPED.container["ports"]
    (served,) = SHIPPED.one("Service")["spec"]["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", 9400)
    assert (served["name"], served["targetPort"], served["port"]) == ("metrics", "metrics", 9400)


def test_an_update_leaves_no_gap() -> None:
    spec = SHIPPED.one("DaemonSet")["spec"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["minReadySeconds"] > 2 * 15, "two scrapes of the ServiceMonitor's interval"
