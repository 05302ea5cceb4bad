"""Small objects of a cluster, as the API server returns them."""

from typing import Any

from podgpu.doctor.cluster.objects import Cluster

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
    """Return a node that offers a number of GPUs; None: it does not have the resource."""
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
    updated: int | None = None,
    spec: Raw | None = None,
) -> Raw:
    labels = {"app.kubernetes.io/name": name}
    made = raw(
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
            # The API leaves out a count of 0.
            **({} if updated == 0 else {"updatedNumberScheduled": updated or desired}),
        },
    )
    set_owner(made, f"{namespace}/{name}")
    return made


def deployment(
    name: str = "podgpu-extender",
    namespace: str = "gpu-system",
    *,
    container: Raw | None = None,
    labels: dict[str, str] | None = None,
    replicas: int | None = 2,
    ready: int | None = 2,
    **spec: Any,
) -> Raw:
    """Return the Deployment of a scheduler extender, as in `docs/extender.md`."""
    whole_container = container or {"image": "podgpu", "args": ["extender"]}
    template = {
        "metadata": {"labels": labels or {"app": name}},
        "spec": {"serviceAccountName": name, "containers": [whole_container], **spec},
    }
    count = {} if replicas is None else {"replicas": replicas}
    status = {} if ready is None else {"readyReplicas": ready}
    return raw("Deployment", name, namespace, spec={**count, "template": template}, status=status)


def pod(of: Raw, on: str, waiting: Raw | None = None, phase: str = "Running") -> Raw:
    """Return a pod of a DaemonSet on a node."""
    state = {"waiting": waiting} if waiting else {"running": {}}
    made = raw(
        "Pod",
        f"{of['metadata']['name']}-{on}",
        of["metadata"]["namespace"],
        labels=of["spec"]["template"]["metadata"]["labels"],
        spec={"nodeName": on},
        status={"phase": phase, "containerStatuses": [{"state": state}]},
    )
    set_owner(of, of["metadata"]["uid"], made)
    return made


def set_owner(daemonset: Raw, uid: str, *pods: Raw) -> None:
    """Set the UID of a DaemonSet, and make it the owner of pods."""
    daemonset["metadata"]["uid"] = uid
    for each in pods:
        owner = {"kind": "DaemonSet", "uid": uid, "controller": True}
        each["metadata"]["ownerReferences"] = [owner]


def cluster(**lists: Any) -> Cluster:
    """Return a cluster with podgpu on its only node; `lists` replace the usual objects."""
    ours = daemonset()
    usual: Raw = {
        "nodes": [node()],
        "daemonsets": [ours],
        "pods": [pod(ours, "gpu-1")],
        "runtimeclasses": [raw("RuntimeClass", "nvidia")],
        "namespaces": [raw("Namespace", "mon", labels={"team": "infra"})],
    }
    return Cluster(**(usual | lists))
