"""What claims are about: the containers, as far as all sources together know them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from pipeline.join.device_index import DeviceIndex, Found
from pipeline.join.dra_devices import ClaimedDevices
from pipeline.join.pod_table import Known
from pipeline.join.trust_rules import COUNTING, IN_CONTAINER
from pipeline.model import Claim, Evidence, PartialRef, Pod, RawDeviceId

RawIds: TypeAlias = dict[tuple[str, str], RawDeviceId]
"""Device ids by scheme and text, each once. Pairs of texts hash many times as fast as the ids."""

Identify: TypeAlias = Callable[[str, Claim], Known | None]
"""Tells which container a claim of a source is about; None if it is about none any more."""

PodKey: TypeAlias = tuple[str, str, str]
"""Namespace, name and uid; those that nobody knows are empty."""


class Word(NamedTuple):
    """A claim that is about a container, and names a device of this node.

    Attributes:
        source: who said it.
        claim: what was said.
        found: what its ids name, real devices before placeholders; not empty, but in a vague word.
        subject: the container, completed; without its id.
        pod: its pod, where a source told of it.
        evidence: what it rests on.
        rank: of what is said of one container the lowest stands.
        parts: it is about a part of its devices: their ids are replicas or placeholders, or the
            device plugin was asked for such.
    """

    source: str
    claim: Claim
    found: list[Found]
    subject: PartialRef
    pod: Pod | None
    evidence: Evidence
    rank: int
    parts: bool = False

    @property
    def real(self) -> bool:
        """Whether it names a device, and not placeholders alone."""
        return not self.found[0].placeholder


_NONE: Final[RawIds] = {}


@dataclass(slots=True)
class Heard:
    """Everything that was said.

    Attributes:
        words: those that can hold a device, in the order of the sources.
        unresolved: by source, ids that fit no device; sources without any are missing.
        allocated: by extended resource, what the kubelet gave out: uuids, and ids that fit no
            device.
        vague: those that have ids which may mean any device, and none that names one; what anybody
            can say is not among them.
        sharing: those that name what a reservation pod got, which is not known yet; nothing is
            found in them.
        admin: those that give access for monitoring, and hold nothing.
    """

    words: list[Word]
    unresolved: dict[str, RawIds]
    allocated: dict[str, set[str]]
    vague: list[Word] = field(default_factory=list)
    sharing: list[Word] = field(default_factory=list)
    admin: list[Word] = field(default_factory=list)

    def without_admin(self, word: Word) -> Word:
        """Keep what gives access for monitoring apart; return the rest."""
        if not any(one.admin for one in word.found):
            return word
        self.admin.append(word._replace(found=[one for one in word.found if one.admin]))
        return word._replace(found=[one for one in word.found if not one.admin])


def hear(
    claims: Mapping[str, Iterable[Claim]],
    devices: DeviceIndex,
    identify: Identify,
    *,
    claimed: ClaimedDevices | None = None,
    numbered: frozenset[str] = frozenset(),
) -> Heard:
    """Find out what all claims are about.

    Args:
        claims: good claims by source, the sources in the order of the configuration.
        devices: the devices of the node.
        identify: tells which container a claim is about.
        claimed: what names of DRA drivers meant when they were given out; None where they mean what
            they mean now.
        numbered: the schemes in which every GPU of the node has a number, as every one has a uuid:
            an annotation with another one names none of them.
    """
    heard = Heard([], {}, {})
    words, vague = heard.words, heard.vague
    for source, said in claims.items():
        strange: RawIds = {}
        for claim in said:
            known = identify(source, claim)
            sharing = bool(claim.devices) and claim.devices[0].scheme == "reserved"
            found, unknown, open_ = (
                ([], _NONE, False) if sharing else _meant(claim, known, devices, claimed)
            )
            if unknown:
                strange.update(unknown)
            if known is None or (evidence := _evidence(claim, known.pod)) is None:
                continue
            if claim.resource and evidence >= Evidence.PLUGIN_ANSWER:
                given, missing = find_ids(claim.asked, devices) if claim.asked else (found, unknown)
                out = heard.allocated.setdefault(claim.resource, set())
                for one in given:
                    out.add(one.uuid)
                for _, text in missing:
                    out.add(text)
            rank, parts = IN_CONTAINER[evidence], False
            if evidence >= Evidence.PLUGIN_ANSWER:
                found, rank, parts = _given(claim, found, devices)
            word = Word(source, claim, found, known.subject, known.pod, evidence, rank, parts)
            word = heard.without_admin(word)
            if sharing:
                heard.sharing.append(word)
            elif word.found:
                words.append(word)
            elif open_ or any(
                devices.vague(raw) for raw in unknown.values() if not _empty(claim, raw, numbered)
            ):
                vague.append(word)
        if strange:
            heard.unresolved[source] = strange
    return heard


def _evidence(claim: Claim, pod: Pod | None) -> Evidence | None:
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


def _given(claim: Claim, found: list[Found], devices: DeviceIndex) -> tuple[list[Found], int, bool]:
    """Return what the kubelet or a plugin said, its rank, and whether it is about parts."""
    rank = IN_CONTAINER[claim.origin.evidence]
    if claim.origin.evidence == Evidence.PLUGIN_ANSWER:
        asked = find_ids(claim.asked, devices)[0]
        parts = not asked or any(not one.whole for one in asked)
        return found, rank, parts
    if claim.resource in COUNTING:
        return [one._replace(whole=False, placeholder=True) for one in found], rank, True
    return found, rank, any(one.replica or one.placeholder for one in found)


def _empty(claim: Claim, raw: RawDeviceId, numbered: frozenset[str]) -> bool:
    """Whether an id that fits no device, and that a pod's author can write, means none."""
    match claim.origin.evidence:
        case Evidence.RUNTIME_ENV:
            return True
        case Evidence.SCHEDULER_ANNOTATION:
            return raw.scheme == "uuid" or raw.scheme in numbered
        case _:
            return False


def _meant(
    claim: Claim, known: Known | None, devices: DeviceIndex, claimed: ClaimedDevices | None
) -> tuple[list[Found], RawIds, bool]:
    """Return what a claim's ids name, and whether it holds something that isn't known."""
    if claimed is None or not claimed.concerns(claim):
        return (*find_ids(claim.devices, devices), False)
    return ([], _NONE, False) if known is None else claimed.find(claim, known, devices)


def find_ids(ids: tuple[RawDeviceId, ...], devices: DeviceIndex) -> tuple[list[Found], RawIds]:
    """Return the devices that ids name, and the ids that name none."""
    if len(ids) == 1:
        # Nearly every claim: written out, since this runs for all of them at each change.
        one = devices.resolve(ids[0])
        return ([], {(ids[0].scheme, ids[0].text): ids[0]}) if one is None else ([one], _NONE)
    found: dict[Found, None] = {}
    unknown: RawIds = {}
    for raw in ids:
        one = devices.resolve(raw)
        if one is None:
            unknown[raw.scheme, raw.text] = raw
        else:
            found[one] = None
    if any(one.placeholder for one in found):
        return sorted(found, key=lambda one: one.placeholder), unknown
    return list(found), unknown
