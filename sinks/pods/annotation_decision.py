"""Whether a pod, as the API server has it, is to be changed, and how."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.allocations.own_annotations import MARK, marked, own, writable
from pipeline.kube.json_access import items, number, table, text
from sinks.pods.held_devices import Wanted

_MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror: the uid by which kubelet and runtime know the pod."""

NO_POD: Final = "has no identity"
"""The reason for what can't be a pod: no API server sends one without uid and version."""

Trouble = Literal["none", "several", "more", "key"]


@dataclass(frozen=True, slots=True)
class Unclear:
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
    unclear: tuple[Unclear, ...] = ()


def decide(pod: Mapping[str, Any], what: Wanted, node: str) -> Decision:
    """Return what is to be done with a pod.

    Args:
        pod: as the API server sent it.
        what: is to stand in its annotations.
        node: the name of this node.
    """
    metadata, spec = table(pod.get("metadata")), table(pod.get("spec"))
    annotations = table(metadata.get("annotations"))
    uid = text(metadata.get("uid"))
    if reason := _strange(pod, what, node):
        return Decision(reason=reason)
    values, unclear = _values(spec, what)
    ours = own(annotations)
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
            "resourceVersion": text(metadata.get("resourceVersion")),
            "annotations": {**changes, MARK: marked(ours, changes)},
        }
    }
    return Decision(patch, tuple(changes), "", foreign, unclear)


def _strange(pod: Mapping[str, Any], what: Wanted, node: str) -> str:
    metadata = table(pod.get("metadata"))
    annotations = table(metadata.get("annotations"))
    uid = text(metadata.get("uid"))
    if not uid or not text(metadata.get("resourceVersion")):
        return NO_POD
    if what.uid and what.uid not in (uid, text(annotations.get(_MIRROR))):
        return "is another pod of that name"
    if text(table(pod.get("spec")).get("nodeName")) != node:
        return "is not on this node"
    if metadata.get("deletionTimestamp") is not None:
        return "is being deleted"
    if text(table(pod.get("status")).get("phase")) in {"Succeeded", "Failed"}:
        return "has ended"
    return ""


def _values(spec: Mapping[str, Any], what: Wanted) -> tuple[dict[str, str], tuple[Unclear, ...]]:
    """Return the annotations that the pod should have, by key, and what can't be said."""
    names = dict.fromkeys(name for _, containers in what.held for name in containers)
    resources: dict[str, str] = {}
    unclear: list[Unclear] = []
    for container in names:
        devices = sum(container in containers for _, containers in what.held)
        found = _resource(spec, container, devices, what.resources)
        if isinstance(found, Unclear):
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
) -> str | Unclear:
    """Return as which resource a container holds its devices."""
    asked: dict[str, int | None] = {}
    for name, amount in _asked(spec, container):
        if name in known and amount != 0:
            before = asked.get(name, 0)
            asked[name] = None if before is None or amount is None else before + amount
    told = tuple(sorted(asked))
    if len(told) != 1:
        return Unclear("several" if told else "none", told, container)
    [(name, most)] = asked.items()
    if most is not None and devices > most:
        return Unclear("more", told, container)
    return name if writable(name) else Unclear("key", told, container)


def _asked(spec: Mapping[str, Any], container: str) -> Iterator[tuple[str, int | None]]:
    """Yield resources and how many of each a container asks for; all of a pod's for no name."""
    every: Iterable[dict[str, Any]] = [
        *items(spec.get("initContainers")),
        *items(spec.get("containers")),
    ]
    for one in every:
        if not container or text(one.get("name")) == container:
            resources = table(one.get("resources"))
            amounts = table(resources.get("requests")) | table(resources.get("limits"))
            for name, amount in amounts.items():
                yield name, _whole(amount)


def _whole(amount: object) -> int | None:
    """Return how many; None where that can't be told: `1k` is a whole number too."""
    written = text(amount)
    return int(written) if written.isdecimal() and len(written) < 10 else number(amount)
