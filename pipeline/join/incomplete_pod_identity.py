"""Claims with an incomplete pod identity: a name without its uid, or a uid without its name."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.join.claim_resolution import ResolvedClaim, resolve_ids
from pipeline.join.device_index import DeviceIndex
from pipeline.model import Evidence

PodName: TypeAlias = tuple[str, str]
"""Namespace and name of a pod."""

ClaimSlot: TypeAlias = tuple[str, str, str]
"""Source, container and resource of a claim."""

DeviceIds: TypeAlias = frozenset[str]
"""The ids that the kubelet requested from a device plugin."""


@dataclass(slots=True)
class IncompleteClaims:
    """The claims with an incomplete pod identity, and the pairs of name and uid that are stated.

    Attributes:
        listed: the ids that the kubelet lists, by pod name and slot.
        unnamed: the claims without a pod name, by uid.
        stated: the uids that a source reports together with a pod name, by that name; for each uid
            since when, by the monotonic clock.
    """

    listed: dict[PodName, dict[ClaimSlot, frozenset[DeviceIds]]] = field(default_factory=dict)
    unnamed: dict[str, list[ResolvedClaim]] = field(default_factory=dict)
    stated: dict[PodName, dict[str, int]] = field(default_factory=dict)

    def listed_ids(self) -> set[tuple[str, str]]:
        """Return the pairs of a resource and an id that are listed under pod names."""
        return {
            (resource, text)
            for slots in self.listed.values()
            for (_, _, resource), several in slots.items()
            for ids in several
            for text in ids
        }


def collect_partial(claims: Iterable[ResolvedClaim]) -> IncompleteClaims:
    """Return the claims in which the pod's name or uid is missing."""
    partial = IncompleteClaims()
    for claim in claims:
        ref = claim.claim.subject
        if ref.pod and not ref.uid:
            slots = partial.listed.setdefault((ref.namespace, ref.pod), {})
            slot = slot_of(claim)
            # Only claims of the kubelet have ids that it allocated.
            ids = ids_of(claim) if claim.evidence >= Evidence.PLUGIN_ANSWER else frozenset[str]()
            slots[slot] = slots.get(slot, frozenset()) | {ids}
        elif ref.uid and not claim.subject.pod:
            partial.unnamed.setdefault(ref.uid, []).append(claim)
    return partial


def without_listed_ids(
    claim: ResolvedClaim, listed: set[tuple[str, str]], devices: DeviceIndex
) -> ResolvedClaim | None:
    """Return a claim without the devices whose ids the kubelet lists under a pod name.

    None if no device is left, or if one of the `asked` ids is listed: it is unknown which device
    belongs to which of these ids. Claims without a resource are not changed, nor are claims whose
    evidence is not `PLUGIN_ANSWER` or `KUBELET_IDS`.

    Args:
        claim: a claim without a pod name.
        listed: resources and ids that are listed under names.
        devices: the devices of the node.
    """
    if claim.evidence < Evidence.PLUGIN_ANSWER or not claim.claim.resource:
        return claim
    ids = claim.claim.asked or claim.claim.devices
    remaining = tuple([raw for raw in ids if (claim.claim.resource, raw.text) not in listed])
    if len(remaining) == len(ids):
        return claim
    if claim.claim.asked or not remaining:
        return None
    if not claim.devices:
        return claim
    found, _ = resolve_ids(remaining, devices)
    return claim._replace(devices=found) if found else None


def pod_name_of(claim: ResolvedClaim) -> PodName:
    """Return the name of a claim's pod."""
    return (claim.subject.namespace, claim.subject.pod)


def slot_of(claim: ResolvedClaim) -> ClaimSlot:
    """Return the source, container and resource of a claim."""
    return (claim.source, claim.subject.container, claim.claim.resource)


def ids_of(claim: ResolvedClaim) -> DeviceIds:
    """Return the ids that the kubelet requested: `asked`, or else the ids of the claim."""
    return frozenset([raw.text for raw in claim.claim.asked or claim.claim.devices])
