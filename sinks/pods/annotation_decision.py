"""Decides whether and how to change the annotations of a pod."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.allocations.own_annotations import MARK, mark_value, own_annotations, writable
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from sinks.pods.held_devices import DesiredAnnotations

_MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a mirror pod: the uid of its static pod in kubelet and container runtime."""

NO_IDENTITY: Final = "has no identity"
"""Reason for an object that cannot be a pod: every pod has a uid and a resourceVersion."""

Trouble = Literal["none", "several", "more", "key"]


@dataclass(frozen=True, slots=True)
class UnclearResource:
    """Why it is unknown for which extended resource a container holds its devices.

    Attributes:
        trouble: `none`: the container requests no resource with GPUs; `several`: it requests
            several; `more`: it holds more devices than it requests; `key`: the name of the resource
            cannot be the key of an annotation.
        resources: the resources that the container requests, sorted.
        container: name of the container; empty if it is unknown. Then the requests of all
            containers count.
    """

    trouble: Trouble
    resources: tuple[str, ...]
    container: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a pod.

    Attributes:
        changes: a merge patch; None if nothing is to be changed.
        keys: keys of the changed annotations.
        reason: why the pod must not be changed; empty if it may be changed.
        foreign: keys of annotations to which another program gave another value. They stay.
        unclear: containers for which nothing is written.
    """

    changes: Mapping[str, object] | None = None
    keys: tuple[str, ...] = ()
    reason: str = ""
    foreign: tuple[str, ...] = ()
    unclear: tuple[UnclearResource, ...] = ()


def decide(pod: Mapping[str, Any], what: DesiredAnnotations, node: str) -> Decision:
    """Return what to do with a pod.

    Args:
        pod: the pod as the API server sent it.
        what: the desired annotations.
        node: name of this node.
    """
    metadata, spec = as_dict(pod.get("metadata")), as_dict(pod.get("spec"))
    annotations = as_dict(metadata.get("annotations"))
    if reason := _refusal_reason(pod, what, node):
        return Decision(reason=reason)
    values, unclear = _values(spec, what)
    own = own_annotations(annotations)
    changes = {
        key: value
        for key, value in values.items()
        if annotations.get(key) != value and (key not in annotations or key in own)
    }
    foreign = tuple(
        key
        for key, value in values.items()
        if key in annotations and key not in own and annotations[key] != value
    )
    if not changes:
        return Decision(foreign=foreign, unclear=unclear)
    patch = {
        "metadata": {
            # If the pod is changed or recreated in the meantime, the API server responds with 409.
            "uid": as_text(metadata.get("uid")),
            "resourceVersion": as_text(metadata.get("resourceVersion")),
            "annotations": {**changes, MARK: mark_value(own, changes)},
        }
    }
    return Decision(patch, tuple(changes), "", foreign, unclear)


def _refusal_reason(pod: Mapping[str, Any], what: DesiredAnnotations, node: str) -> str:
    metadata = as_dict(pod.get("metadata"))
    annotations = as_dict(metadata.get("annotations"))
    uid = as_text(metadata.get("uid"))
    if not uid or not as_text(metadata.get("resourceVersion")):
        return NO_IDENTITY
    if what.uid and what.uid not in (uid, as_text(annotations.get(_MIRROR))):
        return "is another pod of that name"
    if as_text(as_dict(pod.get("spec")).get("nodeName")) != node:
        return "is not on this node"
    if metadata.get("deletionTimestamp") is not None:
        return "is being deleted"
    if as_text(as_dict(pod.get("status")).get("phase")) in {"Succeeded", "Failed"}:
        return "has ended"
    return ""


def _values(
    spec: Mapping[str, Any], what: DesiredAnnotations
) -> tuple[dict[str, str], tuple[UnclearResource, ...]]:
    """Return the values that the pod's annotations should have, by key, and unclear containers.

    A resource of an unclear container is left out.
    """
    names = dict.fromkeys(name for _, containers in what.held for name in containers)
    resources: dict[str, str] = {}
    unclear: list[UnclearResource] = []
    for container in names:
        devices = sum(container in containers for _, containers in what.held)
        found = _resource(spec, container, devices, what.resources)
        if isinstance(found, UnclearResource):
            unclear.append(found)
        else:
            resources[container] = found
    # If some devices of a resource are unclear, a list of the others would be wrong.
    partial = {resource for one in unclear for resource in one.resources}
    uuids: dict[str, dict[str, None]] = {}
    for uuid, containers in what.held:
        for container in containers:
            resource = resources.get(container)
            if resource is not None and resource not in partial:
                uuids.setdefault(resource, {})[uuid] = None
    return {key: ",".join(found) for key, found in sorted(uuids.items())}, tuple(unclear)


def _resource(
    spec: Mapping[str, Any], container: str, devices: int, known: frozenset[str]
) -> str | UnclearResource:
    """Return the resource for which a container holds its devices, or why it is unknown."""
    requested: dict[str, int | None] = {}
    for name, amount in _requested(spec, container):
        if name in known and amount != 0:
            before = requested.get(name, 0)
            requested[name] = None if before is None or amount is None else before + amount
    names = tuple(sorted(requested))
    if len(names) != 1:
        return UnclearResource("several" if names else "none", names, container)
    [(name, limit)] = requested.items()
    if limit is not None and devices > limit:
        return UnclearResource("more", names, container)
    return name if writable(name) else UnclearResource("key", names, container)


def _requested(spec: Mapping[str, Any], container: str) -> Iterator[tuple[str, int | None]]:
    """Yield resources and amounts that a container requests; for "" those of all containers."""
    containers: Iterable[dict[str, Any]] = [
        *as_dicts(spec.get("initContainers")),
        *as_dicts(spec.get("containers")),
    ]
    for item in containers:
        if not container or as_text(item.get("name")) == container:
            resources = as_dict(item.get("resources"))
            amounts = as_dict(resources.get("requests")) | as_dict(resources.get("limits"))
            for name, amount in amounts.items():
                yield name, _whole(amount)


def _whole(amount: object) -> int | None:
    """Return the amount; None if it is not a plain number, such as `1k`."""
    text = as_text(amount)
    return int(text) if text.isdecimal() and len(text) < 10 else as_int(amount)
