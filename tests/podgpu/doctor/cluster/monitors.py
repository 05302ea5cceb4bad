"""ServiceMonitors, Prometheuses and Services for the tests."""

from typing import Any

from tests.podgpu.doctor.cluster.objects import Raw, raw

OURS = {"matchLabels": {"app.kubernetes.io/name": "podgpu"}}


def monitor(
    kind: str = "ServiceMonitor", namespace: str = "mon", spec: Raw | None = None, **labels: str
) -> Raw:
    return raw(kind, "gpu", namespace, labels=labels, spec={"selector": OURS, **(spec or {})})


def prometheus(namespace: str = "prom", **spec: Any) -> Raw:
    return raw("Prometheus", "main", namespace, spec=spec)


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
