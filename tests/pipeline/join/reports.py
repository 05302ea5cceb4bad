"""What all claims are about: the first half of the rule written down from its text.

How ids are read is left to `DeviceIndex`, which has tests of its own.
"""

from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from pipeline.join.device_index import DeviceIndex, ResolvedDevice
from pipeline.model import NS, Claim, Evidence, Instant, PartialRef, Pod
from tests.pipeline.join.cluster import SOURCES
from tests.pipeline.join.worlds import Tables
from tests.support.nodes import at

PodName: TypeAlias = tuple[str, str, str]


@dataclass
class Said:
    """A claim, and what it is about as far as it is known."""

    source: str
    claim: Claim
    found: list[ResolvedDevice]
    namespace: str
    name: str
    uid: str
    container: str
    pod: Pod | None
    parts: bool = False
    shut: set[str] = field(default_factory=set)
    index: DeviceIndex = field(default_factory=lambda: DeviceIndex(()))

    @property
    def evidence(self) -> Evidence:
        return self.claim.origin.evidence

    @property
    def about(self) -> PodName:
        return (self.namespace, self.name, self.uid)

    @property
    def real(self) -> bool:
        return any(not found.is_placeholder for found in self.found)

    @property
    def vague(self) -> bool:
        """Whether it may mean any device, and not by what anybody can write."""
        unknown = [raw for raw in self.claim.devices if self.index.resolve(raw) is None]
        return self.evidence is not Evidence.RUNTIME_ENV and any(
            map(self.index.is_ambiguous, unknown)
        )

    def on(self, uuid: str, *, counting: bool) -> list[ResolvedDevice]:
        return [f for f in self.found if f.uuid == uuid and (counting or not f.is_placeholder)]


def closed(tables: Tables, index: DeviceIndex) -> set[str]:
    """What a device plugin offered last by its real id: no annotation and no variable reaches it.

    Nor what a DRA driver ever published.
    """
    closed: set[str] = set()
    for event in tables.offered:
        ids = [index.resolve(raw) for offer in event.resources for raw in offer.devices]
        real = {one.uuid for one in ids if one is not None and not one.is_placeholder}
        closed -= {one.uuid for one in ids if one is not None and one.is_placeholder}
        closed |= real
    for given_out in tables.published:
        found = [index.alias_target(target) for _, target in given_out.aliases]
        closed |= {one.uuid for one in found if one is not None}
    return closed


def with_parents(closed: set[str], tables: Tables) -> set[str]:
    """And the GPUs of the MIG instances among them."""
    parents = {d.uuid: d.mig.parent_uuid for d in tables.devices if d.mig is not None}
    return closed | {parents[uuid] for uuid in closed if uuid in parents}


def sayings(tables: Tables, index: DeviceIndex) -> list[Said]:
    """Rule 1."""
    found = []
    for source in SOURCES:
        claims = list(tables.claims[source].claims) if source in tables.claims else []
        if source == "pods":
            claims += [claim for pod in tables.pods.values() for claim in pod.claims]
        for claim in claims:
            ref = claim.subject
            ids = [f for raw in claim.devices if (f := index.resolve(raw)) is not None]
            counted = [f for raw in claim.asked if (f := index.resolve(raw)) is not None]
            parts = False
            if claim.origin.evidence is Evidence.KUBELET_IDS:
                parts = any(f.replica or f.is_placeholder for f in ids)
            elif claim.origin.evidence is Evidence.PLUGIN_ANSWER:
                parts = not counted or not all(f.is_whole_device for f in counted)
            runtime = claim.origin.evidence <= Evidence.RUNTIME_ENV
            pod = meant(ref, tables.pods)
            if pod is None:
                unheard_of = not ref.pod and tables.listed
                if runtime or not (gone(ref, tables.gone) or unheard_of):
                    where = (ref.namespace, ref.pod, ref.uid, ref.container)
                    found.append(Said(source, claim, ids, *where, None, parts, index=index))
                continue
            by_name = not ref.uid and not took_on(tables, pod, source, claim.origin.evidence)
            early = claim.origin.evidence is Evidence.SCHEDULER_ANNOTATION and pod.started is None
            if not runtime and (pod.ended or by_name or early):
                continue
            lasting = [c.name for c in pod.containers if c.kind not in {"init", "ephemeral"}]
            container = ref.container or (lasting[0] if len(lasting) == 1 else "")
            info = pod.info
            uid = pod.static_uid or info.uid
            found.append(
                Said(
                    source,
                    claim,
                    ids,
                    info.namespace,
                    info.name,
                    uid,
                    container,
                    pod,
                    parts,
                    index=index,
                )
            )
    return found


def meant(ref: PartialRef, pods: dict[str, Pod]) -> Pod | None:
    for uid, pod in pods.items():
        if ref.uid in {uid, pod.static_uid} if ref.uid else ref.pod == pod.info.name:
            return pod
    return None


def gone(ref: PartialRef, pods: dict[str, Pod]) -> bool:
    """Of a static pod its mirror alone, which goes by the uid."""
    return any(
        ref.uid == uid if pod.static_uid else meant(ref, {uid: pod}) is not None
        for uid, pod in pods.items()
    )


def took_on(tables: Tables, pod: Pod, source: str, evidence: Evidence) -> bool:
    """Whether the name meant the pod when the source stood by its word."""
    said: Instant = at(tables.confirmed[source])
    uid, started = pod.info.uid, pod.started
    if started is not None and (
        started.wall_ns + NS <= said.wall_ns or at(tables.taken_on[uid]) <= said
    ):
        return True
    if said < at(tables.listed_at):
        return False
    before = [
        tables.gone_at[other]
        for other, one in tables.gone.items()
        if one.info.name == pod.info.name and not one.static_uid
    ]
    if started is None:
        return evidence is not Evidence.POD_LIST_FILE and not before
    return not before or (started <= said and all(at(when) < said for when in before))


def named(words: list[Said]) -> list[Said]:
    """Names for those who know uids alone, and uids for those who know names alone.

    Who knows both goes before what the kubelet's words have in common. An id that is listed under a
    name is no other pod's.
    """
    stated = {((w.namespace, w.name), w.uid) for w in words if w.name and w.uid}
    pairs = set(stated)
    for word in words:
        if not word.name:
            places = {
                (other.namespace, other.name)
                for other in words
                if listing(other) and same_devices(word, other)
            }
            if len(places) == 1 and not any(
                places == {place} or uid == word.uid for place, uid in stated
            ):
                pairs.add((places.pop(), word.uid))
    sure = [
        pair
        for pair in pairs
        if not any(
            pair != other and (pair[0] == other[0] or pair[1] == other[1]) for other in pairs
        )
    ]
    for word in words:
        places = {place for place, uid in stated if uid == word.uid}
        if not word.name and len(places) == 1:
            [(word.namespace, word.name)] = places
    for word, (place, uid) in product(words, sure):
        if not word.name and word.uid == uid:
            word.namespace, word.name = place
        elif word.name and not word.uid and (word.namespace, word.name) == place:
            word.uid = uid
    taken = {
        (word.claim.resource, raw.text)
        for word in words
        if listing(word)
        for raw in word.claim.asked or word.claim.devices
    }
    return [left for word in words if (left := without(word, taken)) is not None]


def listing(word: Said) -> bool:
    return bool(word.claim.subject.pod) and not word.claim.subject.uid


def without(word: Said, taken: set[tuple[str, str]]) -> Said | None:
    """Leave out what is listed under a name, of a word that nobody has a name for."""
    claim = word.claim
    if word.name or word.evidence < Evidence.PLUGIN_ANSWER or not claim.resource:
        return word
    ids = claim.asked or claim.devices
    left = [raw for raw in ids if (claim.resource, raw.text) not in taken]
    if len(left) == len(ids):
        return word
    if claim.asked or not left:
        return None
    if not word.found:
        return word
    word.found = [one for one in word.found if any(one == word.index.resolve(r) for r in left)]
    return word if word.found else None


def same_devices(one: Said, other: Said) -> bool:
    def asked(said: Said) -> set[str]:
        return {raw.text for raw in said.claim.asked or said.claim.devices}

    return (
        one.container == other.container
        and one.claim.resource == other.claim.resource
        and asked(one) == asked(other)
    )
