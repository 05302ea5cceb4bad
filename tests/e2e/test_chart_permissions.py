"""RBAC rules, folders and update strategy are the minimum for the enabled components."""

import pytest

from tests.deploy.manifests import Object, documented, ordered
from tests.deploy.places import DOCS
from tests.e2e.charts import Values, rule, sink, source
from tests.e2e.helm import Helm, HelmError

ROOT_READS = {
    "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True),
    "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", True),
}
PODS_RULE = rule("pods", "list", "watch")
CLAIMS_RULE = rule("resourceclaims", "get", group="resource.k8s.io")
SLICES_RULE = rule("resourceslices", "list", "watch", group="resource.k8s.io")


RIGHTS: list[tuple[Values, list[Object]]] = [
    ({"preset": "gpus"}, []),
    ({"preset": "kubernetes"}, [PODS_RULE, CLAIMS_RULE, SLICES_RULE]),
    ({"preset": "runtime"}, [PODS_RULE, CLAIMS_RULE, SLICES_RULE]),
    ({"preset": "koordinator"}, [PODS_RULE, CLAIMS_RULE, SLICES_RULE]),
    (source("pods", resource_slices=False), [PODS_RULE, CLAIMS_RULE]),
    (source("pods", resource_slices=False, resource_claims=False), [PODS_RULE]),
    (source("pods", kubeconfig="/etc/podgpu/kubeconfig"), []),
    ({"config": {"sources": {"pods": None}}}, []),
    (
        sink("node", kind="node"),
        [PODS_RULE, CLAIMS_RULE, SLICES_RULE, rule("nodes", "get", "patch")],
    ),
    (
        sink("marks", kind="pods"),
        [PODS_RULE, CLAIMS_RULE, SLICES_RULE, rule("pods", "get", "patch")],
    ),
    (
        sink("events", kind="events"),
        [PODS_RULE, CLAIMS_RULE, SLICES_RULE, rule("events", "create", "patch")],
    ),
    (
        sink("events", kind="events", kubeconfig="/etc/podgpu/it"),
        [PODS_RULE, CLAIMS_RULE, SLICES_RULE],
    ),
    (source("log", kind="kernel"), [PODS_RULE, CLAIMS_RULE, SLICES_RULE]),
    ({"rbac": {"create": False}}, []),
    ({"kubernetes": {"rbac": {"create": False}}}, []),
    # Options of dcgm-exporter, as arguments, values and variables.
    ({"arguments": ["-c", "5000"]}, []),
    ({"arguments": ["-c", "5000"], "kubernetes": {"enablePodLabels": True}}, [PODS_RULE]),
    ({"arguments": ["-c", "5000"], "kubernetes": {"enablePodUID": True}}, [PODS_RULE]),
    ({"dcgmExporter": True, "kubernetes": {"enablePodUID": True}}, [PODS_RULE]),
    ({"arguments": ["--kubernetes-enable-pod-labels"]}, [PODS_RULE]),
    ({"arguments": ["--kubernetes-enable-pod-labels=false"]}, []),
    ({"arguments": ["-k", "--kubernetes-virtual-gpus"]}, [PODS_RULE]),
    ({"arguments": ["-kubernetes-enable-dra=true"]}, [PODS_RULE, CLAIMS_RULE, SLICES_RULE]),
    (
        {"arguments": ["-c", "1000"], "kubernetesDRA": {"enabled": True}},
        [PODS_RULE, CLAIMS_RULE, SLICES_RULE],
    ),
    (
        {
            "arguments": ["-c", "1000"],
            "extraEnv": [
                {"name": "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "value": "true"},
                {"name": "KUBERNETES_ENABLE_DRA", "value": "false"},
            ],
        },
        [PODS_RULE],
    ),
]


@pytest.mark.parametrize(("values", "rules"), RIGHTS, ids=[str(each)[:60] for each, _ in RIGHTS])
def test_rbac_rules_match_the_enabled_components(
    helm: Helm, values: Values, rules: list[Object]
) -> None:
    made = helm.template(values)
    assert made.rules == ordered(rules)
    # Without rules there is no binding.
    assert bool(made.all("ClusterRoleBinding")) is bool(rules)


@pytest.mark.parametrize(
    ("values", "pages"),
    [
        ({}, ["sources/pods.md"]),
        (sink("node", kind="node"), ["sources/pods.md", "sinks/node.md"]),
        (sink("marks", kind="pods"), ["sources/pods.md", "sinks/pods.md"]),
        (sink("events", kind="events"), ["sources/pods.md", "sinks/events.md"]),
    ],
    ids=lambda it: str(it)[:40],
)
def test_rbac_rules_match_the_documentation(helm: Helm, values: Values, pages: list[str]) -> None:
    assert helm.template(values).rules == documented(*(DOCS / page for page in pages))


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"counters": {"configmap": "monitoring:exporter-metrics-config-map"}}},
        {"arguments": ["-m", "monitoring:exporter-metrics-config-map"]},
        {"arguments": ["--configmap-data=monitoring:exporter-metrics-config-map"]},
    ],
    ids=str,
)
def test_only_the_configmap_of_the_counters_list_can_be_read(helm: Helm, values: Values) -> None:
    made = helm.template(values)
    role, binding = made.one("Role"), made.one("RoleBinding")
    assert ordered(role["rules"]) == documented(DOCS / "configuration.md")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "monitoring"
    assert binding["subjects"][0]["namespace"] == "podgpu"


PATHS: list[tuple[Values, dict[str, tuple[str, bool]]]] = [
    ({"preset": "gpus"}, {}),
    ({}, ROOT_READS),
    (
        {"preset": "runtime"},
        {**ROOT_READS, "/var/run/nri": ("/var/run/nri", True)},
    ),
    (
        {"preset": "koordinator"},
        {
            "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True),
            "/var/run/koordlet/pod-resources": ("/var/run/koordlet/pod-resources", True),
            "/var/run/nri": ("/var/run/nri", True),
        },
    ),
    (
        {"distribution": "k0s"},
        {
            **ROOT_READS,
            "/var/lib/kubelet/pod-resources": ("/var/lib/k0s/kubelet/pod-resources", True),
        },
    ),
    (
        {"distribution": "k0s", "kubeletPath": "/data/kubelet/pod-resources"},
        {**ROOT_READS, "/var/lib/kubelet/pod-resources": ("/data/kubelet/pod-resources", True)},
    ),
    (
        {"preset": "gpus", "distribution": "gke"},
        {
            "/opt/podgpu-driver/libnvidia-ml.so.1": (
                "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1",
                True,
            )
        },
    ),
    ({"preset": "gpus", "distribution": "gke", "driverRoot": "none"}, {}),
    (
        {"preset": "gpus", "driverRoot": "/run/nvidia/driver"},
        {
            "/opt/podgpu-driver/libnvidia-ml.so.1": (
                "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                True,
            )
        },
    ),
    (
        {"preset": "gpus", "driverRoot": "/", "driverLibrary": "/usr/lib64/libnvidia-ml.so.1"},
        {"/opt/podgpu-driver/libnvidia-ml.so.1": ("/usr/lib64/libnvidia-ml.so.1", True)},
    ),
    (
        # One folder for a source and a sink.
        sink("list", kind="podlist"),
        {
            **ROOT_READS,
            "/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", False),
        },
    ),
    (
        {"preset": "gpus", **sink("lines", kind="jsonl", path="/var/log/podgpu/gpu.jsonl")},
        {"/var/log/podgpu": ("/var/log/podgpu", False)},
    ),
    (
        {"preset": "gpus", **sink("book", kind="ledger", path="/var/lib/podgpu/ledger.db")},
        {"/var/lib/podgpu": ("/var/lib/podgpu", False)},
    ),
    (
        {"preset": "gpus", **source("gpus", proc="/host/proc/")},
        {"/host/proc": ("/proc", True)},
    ),
    ({"preset": "gpus", **source("gpus", proc="/proc")}, {}),
    (
        # Two sources with the same procfs, and a kernel log at another path.
        {
            "preset": "gpus",
            "config": {
                "sources": {
                    "gpus": {"proc": "/host/proc"},
                    "log": {"kind": "kernel", "path": "/host/kmsg", "proc": "/host/proc"},
                }
            },
        },
        {"/host/proc": ("/proc", True), "/host/kmsg": ("/dev/kmsg", True)},
    ),
    (
        {
            "preset": "gpus",
            **source("log", kind="kernel", proc="/host/proc"),
            "extraHostVolumes": [{"name": "host", "hostPath": "/"}],
            "extraVolumeMounts": [{"name": "host", "mountPath": "/host"}],
        },
        {"/host": ("/", False), "/dev/kmsg": ("/dev/kmsg", True)},
    ),
    (
        # The values mount the folder, so the chart does not.
        {
            "preset": "gpus",
            **sink("collector", kind="otlp", queue={"path": "/queue"}),
            "extraConfigMapVolumes": [{"name": "queue", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "queue", "mountPath": "/queue"}],
        },
        {},
    ),
    (
        {"arguments": ["-c", "5000"]},
        {"/var/lib/kubelet/pod-resources": ("/var/lib/kubelet/pod-resources", True)},
    ),
]


@pytest.mark.parametrize(("values", "mounts"), PATHS, ids=[str(each)[:60] for each, _ in PATHS])
def test_only_folders_of_enabled_components_are_mounted(
    helm: Helm, values: Values, mounts: dict[str, tuple[str, bool]]
) -> None:
    assert dict(helm.template(values).mounts) == mounts


UPDATES: list[tuple[Values, int]] = [
    ({}, 1),
    (sink("lines", kind="jsonl"), 1),
    (sink("lines", kind="jsonl", path="/var/log/podgpu/gpu.jsonl"), 0),
    (sink("collector", kind="otlp"), 0),
    (sink("list", kind="podlist"), 0),
    (sink("file", kind="textfile", path="/textfile/podgpu.prom"), 0),
    (sink("node", kind="node"), 0),
    (sink("book", kind="ledger", path="/var/lib/podgpu/ledger.db"), 0),
    (sink("events", kind="events"), 0),
    (source("log", kind="kernel"), 1),
    (source("runtime", kind="nri"), 1),
    (source("runtime", kind="nri", inject="koordinator"), 0),
    ({"hostNetwork": True}, 0),
    ({"hostPort": 9400}, 0),
    ({"arguments": ["-c", "5000"]}, 1),
    ({"hostNetwork": True, "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}}, 0),
]


@pytest.mark.parametrize(("values", "surge"), UPDATES, ids=[str(each)[:60] for each, _ in UPDATES])
def test_updates_surge_unless_podgpu_needs_exclusive_resources(
    helm: Helm, values: Values, surge: int
) -> None:
    made = helm.template(values, "--skip-schema-validation")
    strategy = made.one("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]
    assert strategy["maxSurge"] == surge
    assert (strategy["maxUnavailable"] == 0) is (surge == 1)


def test_the_kernel_log_is_mounted_as_a_character_device(helm: Helm) -> None:
    made = helm.template({"preset": "gpus", **source("log", kind="kernel")})
    spec = made.one("DaemonSet")["spec"]["template"]["spec"]
    (volume,) = [one for one in spec["volumes"] if "hostPath" in one]
    assert volume["hostPath"] == {"path": "/dev/kmsg", "type": "CharDevice"}
    assert spec["containers"][0]["securityContext"]["runAsUser"] == 0
    assert "privileged" not in spec["containers"][0]["securityContext"], (
        "privileges need an explicit value"
    )


@pytest.mark.parametrize("place", ["/mnt", "/etc", "/sys/fs", "proc"])
def test_the_host_procfs_must_not_hide_another_folder(helm: Helm, place: str) -> None:
    with pytest.raises(HelmError, match=r"config\.sources\.log\.proc"):
        helm.template({"preset": "gpus", **source("log", kind="kernel", proc=place)})
