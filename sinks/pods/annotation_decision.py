"""Whether a pod, as the API server has it, is to be changed, and how."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.allocations.own_annotations import MARK, mark_value, own_annotations, writable
from pipeline.kube.json_access import as_dict, as_dicts, as_int, as_text
from sinks.pods.held_devices import DesiredAnnotations

_MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror: the uid by which kubelet and runtime know the pod."""

NO_IDENTITY: Final = "has no identity"
"""The reason for what can't be a pod: no API server sends one without uid and version."""

Trouble = Literal["none", "several", "more", "key"]


@dataclass(frozen=True, slots=True)
class UnclearResource:
    """Why it can't be said as which resource a container holds its devices.

    Attributes:
        trouble: it asks for `none`, for `several`, for less than it holds (`more`), or for one
            whose name can be no annotation's (`key`).
        resources: which are in question, sorted.
        container: the container's name; empty for the whole pod.
    """

    trouble: Trouble
    resources: tuple[str, ...]
    container: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with a pod.

    Attributes:
        changes: a merge patch; None for nothing.
        keys: of the annotations that the changes are of.
        reason: why the pod is none of ours; empty if it is one.
        foreign: keys of annotations that are somebody else's, say something else, and stay.
        unclear: of which containers nothing is written.
    """

    changes: Mapping[str, object] | None = None
    keys: tuple[str, ...] = ()
    reason: str = ""
    foreign: tuple[str, ...] = ()
    unclear: tuple[UnclearResource, ...] = ()


def decide(pod: Mapping[str, Any], what: DesiredAnnotations, node: str) -> Decision:
    """Return what is to be done with a pod.

    Args:
        pod: as the API server sent it.
        what: is to stand in its annotations.
        node: the name of this node.
    """
    metadata, spec = as_dict(pod.get("metadata")), as_dict(pod.get("spec"))
    annotations = as_dict(metadata.get("annotations"))
    uid = as_text(metadata.get("uid"))
    if reason := _refusal_reason(pod, what, node):
        return Decision(reason=reason)
    values, unclear = _values(spec, what)
    ours = own_annotations(annotations)
    changes = {
        key: value
        for key, value in values.items()
        if annotations.get(key) != value and (key not in annotations or key in ours)
    }
    foreign = tuple(
        key
        for key, value in values.items()
        if key in annotations and key not in ours and annotations[key] != value
    )
    if not changes:
        return Decision(foreign=foreign, unclear=unclear)
    patch = {
        "metadata": {
            # Whoever changes the pod meanwhile, or makes it anew, makes this a 409.
            "uid": uid,
            "resourceVersion": as_text(metadata.get("resourceVersion")),
            "annotations": {**changes, MARK: mark_value(ours, changes)},
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
    """Return the annotations that the pod should have, by key, and what can't be said."""
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
    # Of a resource of which a part can't be told, the rest would be wrong.
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
    """Return as which resource a container holds its devices."""
    asked: dict[str, int | None] = {}
    for name, amount in _asked(spec, container):
        if name in known and amount != 0:
            before = asked.get(name, 0)
            asked[name] = None if before is None or amount is None else before + amount
    told = tuple(sorted(asked))
    if len(told) != 1:
        return UnclearResource("several" if told else "none", told, container)
    [(name, most)] = asked.items()
    if most is not None and devices > most:
        return UnclearResource("more", told, container)
    return name if writable(name) else UnclearResource("key", told, container)


def _asked(spec: Mapping[str, Any], container: str) -> Iterator[tuple[str, int | None]]:
    """Yield resources and how many of each a container asks for; all of a pod's for no name."""
    every: Iterable[dict[str, Any]] = [
        *as_dicts(spec.get("initContainers")),
        *as_dicts(spec.get("containers")),
    ]
    for one in every:
        if not container or as_text(one.get("name")) == container:
            resources = as_dict(one.get("resources"))
            amounts = as_dict(resources.get("requests")) | as_dict(resources.get("limits"))
            for name, amount in amounts.items():
                yield name, _whole(amount)


def _whole(amount: object) -> int | None:
    """Return how many; None where that can't be told: `1k` is a whole number too."""
    written = as_text(amount)
    return int(written) if written.isdecimal() and len(written) < 10 else as_int(amount)
