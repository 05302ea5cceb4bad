"""Resolution of claims: which container and which devices each claim means."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.device_index import DeviceIndex, RawIds, ResolvedDevice
from pipeline.join.dra_name_history import DraNameHistory
from pipeline.join.pod_table import IdentifiedContainer
from pipeline.join.trust_rules import COUNT_ONLY_RESOURCES
from pipeline.model import Claim, Evidence, Instant, PartialRef, Pod, RawDeviceId

IdentifyContainer: TypeAlias = Callable[[str, Claim], IdentifiedContainer | None]
"""Returns the container that a claim of a source means; None if its pod does not count: it is gone,
has ended, or was not admitted."""

ConfirmedAt: TypeAlias = Callable[[str], Instant | None]
"""Returns when a source last confirmed its claims."""

PodKey: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid of a pod; unknown parts are empty."""


class ResolvedClaim(NamedTuple):
    """A claim with its container and its devices on this node.

    Attributes:
        source: the source of the claim.
        claim: the claim as the source made it.
        devices: the devices that its ids name, real devices before placeholders; empty only for an
            ambiguous claim.
        subject: the container with all known parts, without its id.
        pod: its pod; None if no source reported it.
        evidence: what the claim is based on.
        is_partial: whether the claim is on parts of its devices: the ids, or the ids that the
            device plugin was asked for, are replicas or placeholders.
    """

    source: str
    claim: Claim
    devices: list[ResolvedDevice]
    subject: PartialRef
    pod: Pod | None
    evidence: Evidence
    is_partial: bool = False

    @property
    def pod_key(self) -> PodKey:
        """Namespace, name and uid of the pod."""
        return (self.subject.namespace, self.subject.pod, self.subject.uid)

    @property
    def names_real_device(self) -> bool:
        """Whether the claim names a real device, and not only placeholders."""
        return not self.devices[0].is_placeholder


_NONE: Final[RawIds] = {}


@dataclass(slots=True)
class ResolvedClaims:
    """The claims of all sources, resolved.

    Attributes:
        claims: claims that can hold a device, in the order of the sources.
        unresolved: device ids that match no device, by source; only sources that have such ids.
        allocated: what the kubelet allocated, by extended resource: uuids, and ids that match no
            device.
        ambiguous: claims with ids that may mean any device and no id that names one. Claims by
            which a user could write any id are not among them.
        shared_reservations: claims on the devices of a reservation pod, which are not known yet;
            their `devices` are empty.
        admin_access: claims that give access for monitoring and hold nothing.
    """

    claims: list[ResolvedClaim]
    unresolved: dict[str, RawIds]
    allocated: dict[str, set[str]]
    ambiguous: list[ResolvedClaim] = field(default_factory=list)
    shared_reservations: list[ResolvedClaim] = field(default_factory=list)
    admin_access: list[ResolvedClaim] = field(default_factory=list)


class ResolutionTime(NamedTuple):
    """The time of a resolution, and the times at which sources confirmed their claims.

    Attributes:
        at: the present time.
        confirmed_at: returns when a source last confirmed its claims.
        previously_confirmed_at: returns when a source last confirmed the claims that it made before
            its present ones.
        active_sources: the sources with valid claims.
    """

    at: Instant
    confirmed_at: ConfirmedAt
    previously_confirmed_at: ConfirmedAt
    active_sources: Set[str]


def resolve_claims(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: IdentifyContainer,
    dra_names: DraNameHistory,
) -> ResolvedClaims:
    """Resolve the containers and devices of all claims.

    Args:
        claims: valid claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: returns the container that a claim means.
        dra_names: the devices that names of DRA drivers meant when they were allocated.
    """
    resolved = ResolvedClaims([], {}, {})
    holding, ambiguous = resolved.claims, resolved.ambiguous
    for source, source_claims in claims.items():
        unresolved: RawIds = {}
        for claim in source_claims:
            container = identify(source, claim)
            is_shared = bool(claim.devices) and claim.devices[0].scheme == "reserved"
            found: list[ResolvedDevice] = []
            unknown, holds_unknown = _NONE, False
            if not dra_names.handles(claim):
                found, unknown = resolve_ids(() if is_shared else claim.devices, devices)
            elif container is not None:
                found, unknown, holds_unknown = dra_names.resolve(claim, container, devices)
            if unknown:
                unresolved.update(unknown)
            if container is None or (evidence := _effective_evidence(claim, container.pod)) is None:
                continue
            if claim.resource and evidence >= Evidence.PLUGIN_ANSWER:
                allocated, unmatched = (
                    resolve_ids(claim.asked, devices) if claim.asked else (found, unknown)
                )
                allocated_ids = resolved.allocated.setdefault(claim.resource, set())
                allocated_ids.update(
                    [one.uuid for one in allocated], [text for _, text in unmatched]
                )
            # Several containers without pods may be given one device.
            is_partial = evidence == Evidence.DEVICE_REQUEST
            if evidence >= Evidence.PLUGIN_ANSWER:
                found, is_partial = _classify_kubelet_claim(claim, found, devices)
            resolved_claim = ResolvedClaim(
                source, claim, found, container.subject, container.pod, evidence, is_partial
            )
            if admin := [one for one in found if one.admin_access]:
                resolved.admin_access.append(resolved_claim._replace(devices=admin))
                rest = [one for one in found if not one.admin_access]
                resolved_claim = resolved_claim._replace(devices=rest)
            if is_shared:
                resolved.shared_reservations.append(resolved_claim)
            elif resolved_claim.devices:
                holding.append(resolved_claim)
            elif holds_unknown or any(
                devices.is_ambiguous(raw)
                for raw in unknown.values()
                if not _names_no_device(claim, raw, devices)
            ):
                ambiguous.append(resolved_claim)
        if unresolved:
            resolved.unresolved[source] = unresolved
    return resolved


def _effective_evidence(claim: Claim, pod: Pod | None) -> Evidence | None:
    """Return the evidence of a claim; None if the claim is ignored.

    koordinator's proxy of the kubelet adds devices from the annotations of any pod, whether the pod
    requested them or not. Where the pod's requests are known, podgpu reads the annotation itself
    and ignores the proxy's claim; elsewhere the claim counts as a scheduler's annotation.
    """
    evidence = claim.origin.evidence
    if evidence != Evidence.KUBELET_IDS:
        return evidence
    requests = pod.requests if pod is not None else None
    if requests is None:
        return Evidence.SCHEDULER_ANNOTATION if claim.relayed else evidence
    not_requested = claim.resource != "" and claim.resource not in requests
    return None if claim.relayed or not_requested else evidence


def _classify_kubelet_claim(
    claim: Claim, found: list[ResolvedDevice], devices: DeviceIndex
) -> tuple[list[ResolvedDevice], bool]:
    """Return the devices of a claim of the kubelet or of a plugin, and whether it is partial."""
    if claim.origin.evidence == Evidence.PLUGIN_ANSWER:
        requested = resolve_ids(claim.asked, devices)[0]
        return found, not requested or not all(one.is_whole_device for one in requested)
    if claim.resource in COUNT_ONLY_RESOURCES:
        return [one._replace(is_whole_device=False, is_placeholder=True) for one in found], True
    return found, any(one.replica or one.is_placeholder for one in found)


def _names_no_device(claim: Claim, raw: RawDeviceId, devices: DeviceIndex) -> bool:
    """Whether an unresolved id, which the author of a pod can write, means no device at all."""
    match claim.origin.evidence:
        case Evidence.RUNTIME_ENV:
            return True
        case Evidence.SCHEDULER_ANNOTATION:
            return raw.scheme == "uuid" or raw.scheme in devices.numbered_schemes
        case _:
            return False


def resolve_ids(
    ids: tuple[RawDeviceId, ...], devices: DeviceIndex
) -> tuple[list[ResolvedDevice], RawIds]:
    """Return the devices that ids name, and the ids that name no device."""
    if len(ids) == 1 and ids[0].scheme != "all":
        # The common case, written separately because this runs for all claims at each change.
        one = devices.resolve(ids[0])
        return ([], {(ids[0].scheme, ids[0].text): ids[0]}) if one is None else ([one], _NONE)
    found: dict[ResolvedDevice, None] = {}
    unknown: RawIds = {}
    for raw in ids:
        if raw.scheme == "all":
            found.update(dict.fromkeys(map(ResolvedDevice, devices.every_device)))
            continue
        one = devices.resolve(raw)
        if one is None:
            unknown[raw.scheme, raw.text] = raw
        else:
            found[one] = None
    if any(one.is_placeholder for one in found):
        return sorted(found, key=lambda one: one.is_placeholder), unknown
    return list(found), unknown
