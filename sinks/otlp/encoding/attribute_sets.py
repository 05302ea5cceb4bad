"""Attributes for OpenTelemetry: of devices, and of resources, which are the node and containers.

All attributes are valid, not empty, and have unique names. The service attributes of resources
follow OpenTelemetry's rules for Kubernetes (semantic conventions, non-normative). Service
attributes matter because Prometheus identifies a resource only by them: it would merge two
resources with the same service attributes.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias

from pipeline.base.version import VERSION
from pipeline.exposition.holder_labels import DCGM_ONLY, base, facts
from pipeline.exposition.naming import PageNaming
from pipeline.model import Attrs, Device, PartialRef, PodInfo, owner_facts
from sinks.otlp.encoding.semconv import HW_TYPE, VENDOR
from sinks.otlp.messages import common_pb2

Pairs: TypeAlias = tuple[tuple[str, str | int], ...]

MAX_LENGTH: Final = 1024
"""Maximum number of characters of a name or value; names in Kubernetes are shorter."""

INT64: Final = range(-(1 << 63), 1 << 63)

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
    "podgpu.job.",
)
"""Prefixes of attributes that identify a container, and so must not be added to all resources."""

_CONTAINER_ATTRIBUTES: Final = {
    "runtime": "container.runtime.name",
    "container": "container.name",
    "compose_project": "container.label.com.docker.compose.project",
    "compose_service": "container.label.com.docker.compose.service",
    "image": "container.image.name",
}
"""Attributes of the facts of a container without a pod."""

_JOB_ATTRIBUTES: Final = {
    "slurm_cluster": "podgpu.job.cluster",
    "job": "podgpu.job.id",
    "account": "podgpu.job.account",
    "job_name": "podgpu.job.name",
    "partition": "podgpu.job.partition",
    "user": "podgpu.job.user",
}
"""Attributes of the facts of a job."""

_UNKNOWN: Final = "unknown_service"
"""OpenTelemetry's name for a service without a name."""


def clean(text: str) -> str:
    """Return a text as valid UTF-8, cut to the maximum length."""
    text = text[:MAX_LENGTH]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def merged(*groups: Iterable[tuple[str, str | int]]) -> Pairs:
    """Combine groups of attributes: each name once, without empty values.

    If a name occurs again, the first one keeps it. Later ones get a `_` as prefix.
    """
    found: dict[str, str | int] = {}
    for name, value in chain.from_iterable(groups):
        valid = value if isinstance(value, int) and value in INT64 else clean(str(value))
        if valid == "":
            continue
        unique = clean(name) or "_"
        while unique in found:
            unique = f"_{unique}"
        found[unique] = valid
    return tuple(found.items())


def cleaned(texts: Mapping[str, str]) -> dict[str, str]:
    """Return cleaned names and texts, without empty ones."""
    return {clean(name): clean(value) for name, value in texts.items() if name and value}


def key_values(pairs: Iterable[tuple[str, str | int]]) -> list[common_pb2.KeyValue]:
    """Convert attributes to messages."""
    return [common_pb2.KeyValue(key=name, value=_value(value)) for name, value in pairs]


def _value(value: str | int) -> common_pb2.AnyValue:
    if isinstance(value, bool):
        return common_pb2.AnyValue(bool_value=value)
    if isinstance(value, int):
        return common_pb2.AnyValue(int_value=value)
    return common_pb2.AnyValue(string_value=value)


def semconv_attributes(device: Device, *, typed: bool) -> Pairs:
    """Return the attributes of a device in OpenTelemetry's semantic conventions.

    Args:
        device: its UUID is `hw.id`. A MIG instance also has the UUID of its GPU as `hw.parent`.
        typed: whether to add `hw.type`.
    """
    mig = device.mig
    pairs: list[tuple[str, str | int]] = [("hw.id", device.uuid)]
    if typed:
        pairs.append(HW_TYPE)
    pairs += [("hw.name", _device_name(device)), ("hw.model", device.model), ("hw.vendor", VENDOR)]
    if mig is not None:
        pairs += [
            ("hw.parent", mig.parent_uuid),
            ("podgpu.mig.profile", mig.profile),
            ("podgpu.mig.gpu_instance.id", mig.gpu_instance_id),
        ]
        if mig.compute_instance_id is not None:
            pairs.append(("podgpu.mig.compute_instance.id", mig.compute_instance_id))
    return merged(pairs)


def constant_attributes(device: Device) -> Attrs:
    """Return constant attributes of the board. Only `hw.status` has them, to keep series small."""
    known = facts(device)
    return (
        ("hw.serial_number", known.get("serial", "")),
        ("hw.driver_version", known.get("driver_version", "")),
    )


def dcgm_attributes(device: Device, naming: PageNaming, *, own: bool) -> Pairs:
    """Return dcgm-exporter's labels of a device.

    Args:
        device: the device.
        naming: the label names.
        own: whether the labels are for a metric of podgpu's own, which has fewer labels.
    """
    pairs = base(device, naming)
    if own:
        return merged((name, value) for name, value in pairs if name not in DCGM_ONLY)
    known = facts(device)
    return merged(pairs, ((label, known.get(fact, "")) for label, fact in naming.facts))


def _device_name(device: Device) -> str:
    """Return the device node's name, with GI and CI number for a MIG instance; empty if unknown."""
    if device.minor is not None:
        name = f"nvidia{device.minor}"
    elif device.index is not None:
        name = f"gpu{device.index}"
    else:
        return ""
    mig = device.mig
    if mig is None:
        return name
    name = f"{name}/gi{mig.gpu_instance_id}"
    return name if mig.compute_instance_id is None else f"{name}/ci{mig.compute_instance_id}"


def node_attributes(node: str, extra: Mapping[str, str]) -> Pairs:
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


def container_attributes(
    subject: PartialRef, pod: PodInfo | None, node: str, extra: Mapping[str, str]
) -> Pairs:
    """Return the attributes of the resource of a container or job; unknown ones are left out.

    Args:
        subject: the container or job.
        pod: metadata of its pod, or of the job or the container without a pod, if known.
        node: the node's name.
        extra: configured attributes. Those of a service, container, pod, namespace or workload are
            left out: they describe podgpu itself, not the container.
    """
    added = {
        name: value
        for name, value in extra.items()
        if not name.startswith(_CONTAINER_PREFIXES) and name not in _WORKLOADS.values()
    }
    if subject.kind != "pod":
        service, identity = _owner_attributes(subject, pod, node)
        return tuple((cleaned(service) | cleaned(added) | cleaned(identity)).items())
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
    return tuple(
        (cleaned(service) | cleaned(added) | cleaned(instance) | cleaned(identity)).items()
    )


def _owner_attributes(
    subject: PartialRef, info: PodInfo | None, node: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the attributes of the service and of the identity of a job or a podless container.

    The node is the host here: it need not be a node of Kubernetes. OpenTelemetry has conventions
    for containers, and none for jobs.
    """
    known = owner_facts(subject, info)
    identity = {"host.name": node}
    if subject.kind == "job":
        names, name, group = _JOB_ATTRIBUTES, "job_name", "slurm_cluster"
    else:
        names, name, group = _CONTAINER_ATTRIBUTES, "compose_service", "compose_project"
        identity["container.id"] = subject.uid.partition("://")[2]
    identity |= {names[fact]: text for fact, text in known.items()}
    service = {
        "service.namespace": known.get(group, ""),
        "service.name": known.get(name) or subject.pod or _UNKNOWN,
        _INSTANCE_ID: subject.uid,
    }
    return service, identity


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
