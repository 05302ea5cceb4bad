"""Values for the chart."""

from typing import Any

from tests.deploy.manifests import Object

Values = dict[str, Any]


def rule(resource: str, *verbs: str, group: str = "") -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def source(name: str, **options: Any) -> Values:
    return {"config": {"sources": {name: options}}}


def sink(name: str, **options: Any) -> Values:
    return {"config": {"sinks": {name: options}}}


EVERY: list[Values] = [
    {},
    *({"preset": name} for name in ("gpus", "kubernetes", "runtime", "koordinator")),
    *(
        {"distribution": name}
        for name in ("kubeadm", "k3s", "rke2", "microk8s", "k0s", "gke", "eks", "openshift")
    ),
    sink("lines", kind="jsonl"),
    sink("lines", kind="jsonl", path="/var/log/podgpu/gpu.jsonl"),
    sink("file", kind="textfile", path="/var/lib/node_exporter/textfile/podgpu.prom"),
    sink("list", kind="podlist"),
    sink("collector", kind="otlp", queue={"path": "/var/lib/podgpu/queue/collector"}),
    sink("book", kind="ledger", path="/var/lib/podgpu/ledger.db"),
    sink("events", kind="events"),
    source("list", kind="podlist"),
    source("log", kind="kernel", proc="/host/proc"),
    source("exporter", kind="dcgm", path="/run/prometheus/dcgm.prom"),
    source("engine", kind="hostengine", address="/tmp/engine/nv", library="/usr/lib/libdcgm.so.4"),
    source("runtime", kind="nri", inject="koordinator"),
    {"config": {"sources": {"pods": None}, "counters": {"configmap": "monitoring:counters"}}},
    {"customMetrics": "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature\n"},
    {"tlsServerConfig": {"enabled": True}, "basicAuth": {"users": {"prometheus": "secret"}}},
    {"runtimeClassName": "nvidia", "hostPID": True, "hostNetwork": True},
    {"networkPolicy": {"enabled": True}, "extender": {"enabled": True}, "createNamespace": True},
    {"driverRoot": "/run/nvidia/driver", "criticalQuota": True, "hostPort": 9400},
    {"arguments": ["-f", "/etc/dcgm-exporter/default-counters.csv"]},
    {"dcgmExporter": True, "runtimeClassName": "nvidia", "createRuntimeClass": True},
    {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    {"podMonitor": {"enabled": True}},
    {"usage": {"enabled": True}, "commonLabels": {"team": "gpu"}},
    {
        "usage": {"enabled": True},
        "archive": {
            "enabled": True,
            "to": "s3://bucket/gpus",
            "cluster": "east",
            "compaction": {"enabled": True},
        },
    },
]
"""Values for tests of general properties of the chart."""

DCGM: Values = {
    "arguments": ["-f", "/etc/dcgm-exporter/default-counters.csv", "-c", 10000],
    "securityContext": {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "capabilities": {"add": ["SYS_ADMIN"]},
    },
    "service": {"enable": True, "type": "ClusterIP", "port": 9400, "address": ":9400"},
    "serviceMonitor": {"enabled": True, "interval": "15s", "honorLabels": False},
    "kubernetes": {"enablePodLabels": True, "podLabelAllowlistRegex": ["^team$", "^app"]},
    "extraConfigMapVolumes": [
        {
            "name": "exporter-metrics-volume",
            "configMap": {
                "name": "exporter-metrics-config-map",
                "items": [{"key": "metrics", "path": "default-counters.csv"}],
            },
        }
    ],
    "extraVolumeMounts": [
        {
            "name": "exporter-metrics-volume",
            "mountPath": "/etc/dcgm-exporter/default-counters.csv",
            "subPath": "default-counters.csv",
        }
    ],
    "extraHostVolumes": [{"name": "host-binaries", "hostPath": "/opt/bin"}],
    "extraEnv": [{"name": "DCGM_EXPORTER_LOG_FORMAT", "value": "json"}],
    "nodeSelector": {"node": "gpu"},
    "tolerations": [{"operator": "Exists"}],
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    "kubeletPath": "/var/lib/kubelet/pod-resources",
    "debugDump": {"enabled": False, "directory": "/tmp/dumps", "retention": 24},
}
"""Like a values file for dcgm-exporter's chart."""
