"""What claims are about: the containers, as far as all sources together know them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.device_index import DeviceIndex, ResolvedDevice
from pipeline.join.dra_devices import DraNameHistory
from pipeline.join.pod_table import IdentifiedContainer
from pipeline.join.trust_rules import CONTAINER_RANK, COUNT_ONLY_RESOURCES
from pipeline.model import Claim, Evidence, PartialRef, Pod, RawDeviceId

RawIds: TypeAlias = dict[tuple[str, str], RawDeviceId]
"""Device ids by scheme and text, each once. Pairs of texts hash many times as fast as the ids."""

IdentifyContainer: TypeAlias = Callable[[str, Claim], IdentifiedContainer | None]
"""Tells which container a claim of a source is about; None if it is about none any more."""

PodKey: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid; those that nobody knows are empty."""


class ResolvedClaim(NamedTuple):
    """A claim that is about a container, and names a device of this node.

    Attributes:
        source: who said it.
        claim: what was said.
        devices: what its ids name, real devices before placeholders; not empty, but in a vague
            word.
        subject: the container, completed; without its id.
        pod: its pod, where a source told of it.
        evidence: what it rests on.
        rank: of what is said of one container the lowest stands.
        is_partial: it is about a part of its devices: their ids are replicas or placeholders, or
            the device plugin was asked for such.
    """

    source: str
    claim: Claim
    devices: list[ResolvedDevice]
    subject: PartialRef
    pod: Pod | None
    evidence: Evidence
    rank: int
    is_partial: bool = False

    @property
    def names_real_device(self) -> bool:
        """Whether it names a device, and not placeholders alone."""
        return not self.devices[0].is_placeholder


_NONE: Final[RawIds] = {}


@dataclass(slots=True)
class ResolvedClaims:
    """Everything that was said.

    Attributes:
        claims: those that can hold a device, in the order of the sources.
        unresolved: by source, ids that fit no device; sources without any are missing.
        allocated: by extended resource, what the kubelet gave out: uuids, and ids that fit no
            device.
        ambiguous: those that have ids which may mean any device, and none that names one; what
            anybody can say is not among them.
        shared_reservations: those that name what a reservation pod got, which is not known yet;
            nothing is found in them.
        admin_access: those that give access for monitoring, and hold nothing.
    """

    claims: list[ResolvedClaim]
    unresolved: dict[str, RawIds]
    allocated: dict[str, set[str]]
    ambiguous: list[ResolvedClaim] = field(default_factory=list)
    shared_reservations: list[ResolvedClaim] = field(default_factory=list)
    admin_access: list[ResolvedClaim] = field(default_factory=list)

    def split_admin_access(self, claim: ResolvedClaim) -> ResolvedClaim:
        """Keep what gives access for monitoring apart; return the rest."""
        if not any(one.admin_access for one in claim.devices):
            return claim
        self.admin_access.append(
            claim._replace(devices=[one for one in claim.devices if one.admin_access])
        )
        return claim._replace(devices=[one for one in claim.devices if not one.admin_access])


def resolve_claims(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: IdentifyContainer,
    *,
    dra_names: DraNameHistory | None = None,
    numbered_schemes: frozenset[str] = frozenset(),
) -> ResolvedClaims:
    """Find out what all claims are about.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: tells which container a claim is about.
        dra_names: what names of DRA drivers meant when they were given out; None where they mean
            what they mean now.
        numbered_schemes: the schemes in which every GPU of the node has a number, as every one has
            a uuid: an annotation with another one names none of them.
    """
    heard = ResolvedClaims([], {}, {})
    words, vague = heard.claims, heard.ambiguous
    for source, said in claims.items():
        strange: RawIds = {}
        for claim in said:
            known = identify(source, claim)
            sharing = bool(claim.devices) and claim.devices[0].scheme == "reserved"
            found, unknown, open_ = (
                ([], _NONE, False)
                if sharing
                else _resolve_devices(claim, known, devices, dra_names)
            )
            if unknown:
                strange.update(unknown)
            if known is None or (evidence := _effective_evidence(claim, known.pod)) is None:
                continue
            if claim.resource and evidence >= Evidence.PLUGIN_ANSWER:
                given, missing = (
                    resolve_ids(claim.asked, devices) if claim.asked else (found, unknown)
                )
                out = heard.allocated.setdefault(claim.resource, set())
                for one in given:
                    out.add(one.uuid)
                for _, text in missing:
                    out.add(text)
            rank, parts = CONTAINER_RANK[evidence], False
            if evidence >= Evidence.PLUGIN_ANSWER:
                found, rank, parts = _classify_kubelet_claim(claim, found, devices)
            word = ResolvedClaim(
                source, claim, found, known.subject, known.pod, evidence, rank, parts
            )
            word = heard.split_admin_access(word)
            if sharing:
                heard.shared_reservations.append(word)
            elif word.devices:
                words.append(word)
            elif open_ or any(
                devices.is_ambiguous(raw)
                for raw in unknown.values()
                if not _names_no_device(claim, raw, numbered_schemes)
            ):
                vague.append(word)
        if strange:
            heard.unresolved[source] = strange
    return heard


def _effective_evidence(claim: Claim, pod: Pod | None) -> Evidence | None:
    """Return what a claim rests on; None if another claim says it better.

    koordinator's proxy of the kubelet adds what stands in any pod's annotation, requested or not.
    Who sees what the pod requests reads the annotation itself; else it is no more than that.
    """
    evidence = claim.origin.evidence
    if evidence != Evidence.KUBELET_IDS:
        return evidence
    requests = pod.requests if pod is not None else None
    if requests is None:
        return Evidence.SCHEDULER_ANNOTATION if claim.relayed else evidence
    unasked = claim.resource != "" and claim.resource not in requests
    return None if claim.relayed or unasked else evidence


def _classify_kubelet_claim(
    claim: Claim, found: list[ResolvedDevice], devices: DeviceIndex
) -> tuple[list[ResolvedDevice], int, bool]:
    """Return what the kubelet or a plugin said, its rank, and whether it is about parts."""
    rank = CONTAINER_RANK[claim.origin.evidence]
    if claim.origin.evidence == Evidence.PLUGIN_ANSWER:
        asked = resolve_ids(claim.asked, devices)[0]
        parts = not asked or any(not one.is_whole_device for one in asked)
        return found, rank, parts
    if claim.resource in COUNT_ONLY_RESOURCES:
        return (
            [one._replace(is_whole_device=False, is_placeholder=True) for one in found],
            rank,
            True,
        )
    return found, rank, any(one.replica or one.is_placeholder for one in found)


def _names_no_device(claim: Claim, raw: RawDeviceId, numbered: frozenset[str]) -> bool:
    """Whether an id that fits no device, and that a pod's author can write, means none."""
    match claim.origin.evidence:
        case Evidence.RUNTIME_ENV:
            return True
        case Evidence.SCHEDULER_ANNOTATION:
            return raw.scheme == "uuid" or raw.scheme in numbered
        case _:
            return False


def _resolve_devices(
    claim: Claim,
    identified: IdentifiedContainer | None,
    devices: DeviceIndex,
    claimed: DraNameHistory | None,
) -> tuple[list[ResolvedDevice], RawIds, bool]:
    """Return what a claim's ids name, and whether it holds something that isn't known."""
    if claimed is None or not claimed.handles(claim):
        return (*resolve_ids(claim.devices, devices), False)
    return ([], _NONE, False) if identified is None else claimed.resolve(claim, identified, devices)


def resolve_ids(
    ids: tuple[RawDeviceId, ...], devices: DeviceIndex
) -> tuple[list[ResolvedDevice], RawIds]:
    """Return the devices that ids name, and the ids that name none."""
    if len(ids) == 1:
        # Nearly every claim: written out, since this runs for all of them at each change.
        one = devices.resolve(ids[0])
        return ([], {(ids[0].scheme, ids[0].text): ids[0]}) if one is None else ([one], _NONE)
    found: dict[ResolvedDevice, None] = {}
    unknown: RawIds = {}
    for raw in ids:
        one = devices.resolve(raw)
        if one is None:
            unknown[raw.scheme, raw.text] = raw
        else:
            found[one] = None
    if any(one.is_placeholder for one in found):
        return sorted(found, key=lambda one: one.is_placeholder), unknown
    return list(found), unknown
