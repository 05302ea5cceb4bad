"""What each pod of the node holds, by the join's word."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pipeline.model import Attribution, Holder

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(rf"(?=.{{1,63}}\Z){_LABEL}")
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")

Held: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Uuids in the order of the devices, each with the containers that hold it; an empty name is a
container that nobody could tell."""


class PodRef(NamedTuple):
    """Where a pod is found."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The pod's path on an API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DesiredAnnotations:
    """What is to stand in a pod's annotations.

    Attributes:
        uid: the pod's, as the API server, the kubelet or the runtime has it; empty if unknown.
        held: what it holds.
        resources: names of the extended resources that are known to be of GPUs.
    """

    uid: str
    held: Held
    resources: frozenset[str]


def desired_annotations(
    attributions: Iterable[Attribution], resources: frozenset[str]
) -> dict[PodRef, DesiredAnnotations]:
    """Return what is to stand in the annotations of all pods that hold something.

    Left out is who has no name that a pod can have, and a pod as a whole if it isn't settled what
    it holds: one of its devices is shown with several pods of which only one can have it, or two
    pods have its name. Half of what a pod holds would be wrong.

    Args:
        attributions: in device order.
        resources: names of the extended resources that are known to be of GPUs.
    """
    held: dict[PodRef, dict[str, dict[str, None]]] = {}
    uids: dict[PodRef, set[str]] = {}
    unsettled: set[PodRef] = set()
    for attribution in attributions:
        pods = set()
        for holder in attribution.holders:
            place, uid = PodRef(holder.subject.namespace, holder.subject.pod), _uid(holder)
            pods.add((place, uid))
            containers = held.setdefault(place, {}).setdefault(attribution.device.uuid, {})
            containers[holder.subject.container] = None
            uids.setdefault(place, set()).add(uid)
        if attribution.conflicts and len(pods) > 1:
            unsettled.update(place for place, _ in pods)
    found: dict[PodRef, DesiredAnnotations] = {}
    for place, devices in held.items():
        known = uids[place] - {""}
        if place in unsettled or len(known) > 1 or not _possible(place):
            continue
        what = tuple((uuid, tuple(containers)) for uuid, containers in devices.items())
        found[place] = DesiredAnnotations(next(iter(known), ""), what, resources)
    return found


def _uid(holder: Holder) -> str:
    return holder.subject.uid if holder.pod is None else holder.pod.uid


def _possible(place: PodRef) -> bool:
    # Sources read names from files too: what is no name must not become a path.
    return (
        _NAMESPACE.fullmatch(place.namespace) is not None
        and _NAME.fullmatch(place.name) is not None
    )
