"""Resources: the node, and the containers that hold its devices.

What identifies a service in Kubernetes follows OpenTelemetry's rules for that (semantic
conventions, non-normative). It matters, since Prometheus knows a resource by it alone: two
resources with one service identity would be one series there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pipeline.base.version import VERSION
from pipeline.model import Holder, PartialRef, PodInfo
from sinks.otlp.encoding.attributes import Pairs, cleaned

_WORKLOADS: Final = MappingProxyType(
    {
        kind: f"k8s.{kind.lower()}.name"
        for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "CronJob", "Job")
    }
)
_ANNOTATION_PREFIX: Final = "resource.opentelemetry.io/"
_LABEL: Final = "app.kubernetes.io/"
_INSTANCE_ID: Final = "service.instance.id"
_CONTAINER_PREFIXES: Final = (
    "service.",
    "k8s.pod.",
    "k8s.container.",
    "container.",
    "k8s.namespace.",
)
"""What begins so says whose resource it is."""

_UNKNOWN: Final = "unknown_service"
"""What OpenTelemetry calls a service that nobody has named."""


def of_node(node: str, extra: Mapping[str, str]) -> Pairs:
    """Return the attributes of the node's resource.

    There is no `host.name`: the Collector's k8sattributes takes it for the address of a pod.

    Args:
        node: its name.
        extra: what was configured; it wins.
    """
    ours = {
        "k8s.node.name": node,
        "service.name": "podgpu",
        _INSTANCE_ID: node,
        "service.version": VERSION,
    }
    return tuple((cleaned(ours) | cleaned(extra)).items())


def of_container(holder: Holder, node: str, extra: Mapping[str, str]) -> Pairs:
    """Return the attributes of the resource of a container that holds a device."""
    return of_subject(holder.subject, holder.pod, node, extra)


def of_subject(
    subject: PartialRef, pod: PodInfo | None, node: str, extra: Mapping[str, str]
) -> Pairs:
    """Return the attributes of a container's resource; those that nobody knows are left out.

    Args:
        subject: the container.
        pod: what is known of its pod.
        node: the node's name.
        extra: what was configured. What of it names a service, a pod or a workload is left out: it
            is said of podgpu, in whose pod the variables with such attributes were put.
    """
    place = {
        "k8s.node.name": node,
        "k8s.namespace.name": subject.namespace,
        "k8s.pod.name": subject.pod,
        "k8s.pod.uid": subject.uid,
        "k8s.container.name": subject.container,
        "container.id": subject.container_id,
    }
    parts = [part for part in (subject.namespace, subject.pod, subject.container) if part]
    service = {
        "service.namespace": subject.namespace,
        "service.name": subject.pod or subject.container or _UNKNOWN,
    }
    instance = {_INSTANCE_ID: ".".join(parts) or subject.uid or subject.container_id}
    if pod is not None:
        place["k8s.pod.uid"] = subject.uid or pod.uid
        place |= _of_pod(pod)
        service |= _service(pod)
        told = {
            name.removeprefix(_ANNOTATION_PREFIX): value
            for name, value in pod.annotations
            if name.startswith(_ANNOTATION_PREFIX) and value
        }
        service |= told
        instance |= {name: value for name, value in told.items() if name == _INSTANCE_ID}
    added = {
        name: value
        for name, value in extra.items()
        if not name.startswith(_CONTAINER_PREFIXES) and name not in _WORKLOADS.values()
    }
    return tuple((cleaned(service) | cleaned(added) | cleaned(instance) | cleaned(place)).items())


def _of_pod(pod: PodInfo) -> dict[str, str]:
    found = {f"k8s.pod.label.{name}": value for name, value in pod.labels}
    found |= {f"k8s.pod.annotation.{name}": value for name, value in pod.annotations}
    workload = _WORKLOADS.get(pod.owner_kind)
    if workload is not None:
        found[workload] = pod.owner_name
    return found


def _service(pod: PodInfo) -> dict[str, str]:
    labels = dict(pod.labels)
    name = labels.get(f"{_LABEL}instance") or labels.get(f"{_LABEL}name") or pod.owner_name
    version = labels.get(f"{_LABEL}version", "")
    found = {"service.name": name, "service.version": version}
    return {name: value for name, value in found.items() if value}
