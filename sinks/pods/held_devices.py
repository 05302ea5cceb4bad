"""The devices that each pod of the node holds, according to the join's attributions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pipeline.kube.name_rules import is_pod
from pipeline.model import Attribution, Holder

Held: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Uuids in the order of the devices, each with the containers that hold it. The name of a container
is empty if it is unknown."""


class PodRef(NamedTuple):
    """Namespace and name of a pod."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The path of the pod on the API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DesiredAnnotations:
    """What the annotations of a pod should contain.

    Attributes:
        uid: uid of the pod, as the API server, the kubelet or the runtime reports it; empty if
            unknown.
        held: the devices that the pod holds, with the containers that hold them.
        resources: names of the extended resources that are known to have GPUs.
    """

    uid: str
    held: Held
    resources: frozenset[str]


def desired_annotations(
    attributions: Iterable[Attribution], resources: frozenset[str]
) -> dict[PodRef, DesiredAnnotations]:
    """Return for each pod that holds devices what its annotations should contain.

    Holders without a valid pod name are left out, and so are jobs and containers without pods. A
    pod is left out completely if it is uncertain what it holds: one of its devices has a conflict
    and holders in several pods, or several pods have its name. Annotations with only a part of its
    devices would be wrong.

    Args:
        attributions: in device order.
        resources: names of the extended resources that are known to have GPUs.
    """
    held: dict[PodRef, dict[str, dict[str, None]]] = {}
    uids: dict[PodRef, set[str]] = {}
    uncertain: set[PodRef] = set()
    for attribution in attributions:
        pods = set()
        for holder in attribution.holders:
            place, uid = PodRef(holder.subject.namespace, holder.subject.pod), _uid(holder)
            pods.add((place, uid))
            if holder.subject.kind != "pod":
                continue
            containers = held.setdefault(place, {}).setdefault(attribution.device.uuid, {})
            containers[holder.subject.container] = None
            uids.setdefault(place, set()).add(uid)
        if attribution.conflicts and len(pods) > 1:
            uncertain.update(place for place, _ in pods)
    result: dict[PodRef, DesiredAnnotations] = {}
    for place, devices in held.items():
        known_uids = uids[place] - {""}
        # Sources also read names from files: an invalid name must not become part of a path.
        if place in uncertain or len(known_uids) > 1 or not is_pod(*place):
            continue
        held_devices = tuple((uuid, tuple(containers)) for uuid, containers in devices.items())
        result[place] = DesiredAnnotations(next(iter(known_uids), ""), held_devices, resources)
    return result


def _uid(holder: Holder) -> str:
    return holder.subject.uid if holder.pod is None else holder.pod.uid
