"""Attributes of resources: the node, and the containers that hold its devices.

The service attributes follow OpenTelemetry's rules for Kubernetes (semantic conventions,
non-normative). They matter because Prometheus identifies a resource only by them: it would merge
two resources with the same service identity.
"""

from collections.abc import Mapping
from typing import Final

from pipeline.base.version import VERSION
from pipeline.model import PartialRef, PodInfo
from sinks.otlp.encoding.attributes import Pairs, cleaned

_WORKLOADS: Final = {
    kind: f"k8s.{kind.lower()}.name"
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "CronJob", "Job")
}
_ANNOTATION_PREFIX: Final = "resource.opentelemetry.io/"
_LABEL_PREFIX: Final = "app.kubernetes.io/"
_INSTANCE_ID: Final = "service.instance.id"
_CONTAINER_PREFIXES: Final = (
    "service.",
    "k8s.pod.",
    "k8s.container.",
    "container.",
    "k8s.namespace.",
)
"""Prefixes of attributes that identify a container, and so must not be added to all resources."""

_UNKNOWN: Final = "unknown_service"
"""OpenTelemetry's name for a service without a name."""


def of_node(node: str, extra: Mapping[str, str]) -> Pairs:
    """Return the attributes of the node's resource.

    There is no `host.name`, because the Collector's k8sattributes processor interprets it as the
    address of a pod.

    Args:
        node: the node's name.
        extra: configured attributes; they take precedence.
    """
    defaults = {
        "k8s.node.name": node,
        "service.name": "podgpu",
        _INSTANCE_ID: node,
        "service.version": VERSION,
    }
    return tuple((cleaned(defaults) | cleaned(extra)).items())


def of_subject(
    subject: PartialRef, pod: PodInfo | None, node: str, extra: Mapping[str, str]
) -> Pairs:
    """Return the attributes of a container's resource; unknown ones are left out.

    Args:
        subject: the container.
        pod: metadata of its pod, if known.
        node: the node's name.
        extra: configured attributes. Those that identify a service, a pod or a workload are left
            out: they describe podgpu, whose pod has the variables that set them.
    """
    identity = {
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
        identity["k8s.pod.uid"] = subject.uid or pod.uid
        identity |= _of_pod(pod)
        service |= _service(pod)
        annotated = {
            name.removeprefix(_ANNOTATION_PREFIX): value
            for name, value in pod.annotations
            if name.startswith(_ANNOTATION_PREFIX) and value
        }
        service |= annotated
        instance |= {name: value for name, value in annotated.items() if name == _INSTANCE_ID}
    added = {
        name: value
        for name, value in extra.items()
        if not name.startswith(_CONTAINER_PREFIXES) and name not in _WORKLOADS.values()
    }
    return tuple(
        (cleaned(service) | cleaned(added) | cleaned(instance) | cleaned(identity)).items()
    )


def _of_pod(pod: PodInfo) -> dict[str, str]:
    attributes = {f"k8s.pod.label.{name}": value for name, value in pod.labels}
    attributes |= {f"k8s.pod.annotation.{name}": value for name, value in pod.annotations}
    workload = _WORKLOADS.get(pod.owner_kind)
    if workload is not None:
        attributes[workload] = pod.owner_name
    return attributes


def _service(pod: PodInfo) -> dict[str, str]:
    labels = {
        name.removeprefix(_LABEL_PREFIX): value
        for name, value in pod.labels
        if name.startswith(_LABEL_PREFIX)
    }
    name = labels.get("instance") or labels.get("name") or pod.owner_name
    attributes = {"service.name": name, "service.version": labels.get("version", "")}
    return {name: value for name, value in attributes.items() if value}
