"""Objects of a cluster as its API server has them, small."""

from typing import Any

from pipeline.doctor.cluster.objects import Cluster

Raw = dict[str, Any]
PRESENT = "nvidia.com/gpu.present"


def raw(kind: str, name: str, namespace: str = "", **more: Any) -> Raw:
    labels = more.pop("labels", {})
    metadata: Raw = {"name": name, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    return {"kind": kind, "metadata": metadata, **more}


def node(
    name: str = "gpu-1",
    gpus: int | None = 8,
    *,
    allocatable: int | None = None,
    taints: tuple[Raw, ...] = (),
    **labels: str,
) -> Raw:
    """A node that offers so many GPUs; None for one without the resource."""
    capacity = {"cpu": "64"} | ({} if gpus is None else {"nvidia.com/gpu": str(gpus)})
    free = capacity if allocatable is None else {"nvidia.com/gpu": str(allocatable)}
    return raw(
        "Node",
        name,
        labels=labels,
        spec={"taints": list(taints)},
        status={"capacity": capacity, "allocatable": free},
    )


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Raw:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def daemonset(
    name: str = "podgpu",
    namespace: str = "mon",
    *,
    image: str = "registry.example:5000/gpu/podgpu:1.2@sha256:00",
    desired: int = 1,
    ready: int | None = None,
    spec: Raw | None = None,
) -> Raw:
    labels = {"app.kubernetes.io/name": name}
    return raw(
        "DaemonSet",
        name,
        namespace,
        spec={
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"image": image}], **(spec or {})},
            },
        },
        status={
            "desiredNumberScheduled": desired,
            "numberReady": desired if ready is None else ready,
        },
    )


def pod(of: Raw, on: str, waiting: Raw | None = None, phase: str = "Running") -> Raw:
    """A pod of a DaemonSet on a node."""
    state = {"waiting": waiting} if waiting else {"running": {}}
    return raw(
        "Pod",
        f"{of['metadata']['name']}-{on}",
        of["metadata"]["namespace"],
        labels=of["spec"]["template"]["metadata"]["labels"],
        spec={"nodeName": on},
        status={"phase": phase, "containerStatuses": [{"state": state}]},
    )


def cluster(**lists: Any) -> Cluster:
    """A cluster with podgpu on its one node; `lists` are other objects."""
    ours = daemonset()
    usual: Raw = {
        "nodes": [node()],
        "daemonsets": [ours],
        "pods": [pod(ours, "gpu-1")],
        "runtimeclasses": [raw("RuntimeClass", "nvidia")],
        "namespaces": [raw("Namespace", "mon", labels={"team": "infra"})],
    }
    return Cluster(**(usual | lists))
