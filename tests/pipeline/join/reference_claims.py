"""The first half of the reference implementation: which pod and which devices a claim names.

`DeviceIndex` resolves the ids; it has tests of its own.
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
class PodClaim:
    """A claim, and the pod, container and devices that it names as far as these are known.

    Attributes:
        parts: the claim is on parts of the devices.
        plugin_managed: UUIDs of the plugin-managed devices.
    """

    source: str
    claim: Claim
    found: list[ResolvedDevice]
    namespace: str
    name: str
    uid: str
    container: str
    pod: Pod | None
    parts: bool = False
    plugin_managed: set[str] = field(default_factory=set)
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
        """Whether it may mean any device. A variable, which any image can set, is not vague."""
        unknown = [raw for raw in self.claim.devices if self.index.resolve(raw) is None]
        return self.evidence is not Evidence.RUNTIME_ENV and any(
            map(self.index.is_ambiguous, unknown)
        )

    def ids_on(self, uuid: str, *, counting: bool) -> list[ResolvedDevice]:
        return [f for f in self.found if f.uuid == uuid and (counting or not f.is_placeholder)]


def offered_by_plugins(tables: Tables, index: DeviceIndex) -> set[str]:
    """Return the devices that a device plugin offered last under their real ids.

    Devices that a DRA driver ever published are included. Annotations and variables have no effect
    on any of them.
    """
    closed: set[str] = set()
    for event in tables.offered:
        ids = [index.resolve(raw) for offer in event.resources for raw in offer.devices]
        real = {one.uuid for one in ids if one is not None and not one.is_placeholder}
        closed -= {one.uuid for one in ids if one is not None and one.is_placeholder}
        closed |= real
    for published in tables.published:
        found = [index.alias_target(target) for _, target in published.aliases]
        closed |= {one.uuid for one in found if one is not None}
    return closed


def with_parents(devices: set[str], tables: Tables) -> set[str]:
    """Add the GPUs of the MIG instances among the devices."""
    parents = {d.uuid: d.mig.parent_uuid for d in tables.devices if d.mig is not None}
    return devices | {parents[uuid] for uuid in devices if uuid in parents}


def reported_claims(tables: Tables, index: DeviceIndex) -> list[PodClaim]:
    """Return all claims whose pods may hold devices (rule 1)."""
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
                unknown_uid = not ref.pod and tables.pods_listed
                if runtime or not (gone(ref, tables.gone) or unknown_uid):
                    where = (ref.namespace, ref.pod, ref.uid, ref.container)
                    found.append(PodClaim(source, claim, ids, *where, None, parts, index=index))
                continue
            by_name = not ref.uid and not admitted(tables, pod, source, claim.origin.evidence)
            early = claim.origin.evidence is Evidence.SCHEDULER_ANNOTATION and pod.started is None
            if not runtime and (pod.ended or by_name or early):
                continue
            lasting = [c.name for c in pod.containers if c.kind not in {"init", "ephemeral"}]
            container = ref.container or (lasting[0] if len(lasting) == 1 else "")
            info = pod.info
            uid = pod.static_uid or info.uid
            found.append(
                PodClaim(
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
    """Whether a claim names a pod that is gone. Of a static pod, only the mirror's UID is gone."""
    return any(
        ref.uid == uid if pod.static_uid else meant(ref, {uid: pod}) is not None
        for uid, pod in pods.items()
    )


def admitted(tables: Tables, pod: Pod, source: str, evidence: Evidence) -> bool:
    """Whether the name meant this pod when the source last confirmed its report."""
    confirmed: Instant = at(tables.confirmed[source])
    uid, started = pod.info.uid, pod.started
    if started is not None and (
        started.wall_ns + NS <= confirmed.wall_ns or at(tables.taken_on[uid]) <= confirmed
    ):
        return True
    if confirmed < at(tables.listed_at):
        return False
    before = [
        tables.gone_at[other]
        for other, one in tables.gone.items()
        if one.info.name == pod.info.name and not one.static_uid
    ]
    if started is None:
        return evidence is not Evidence.POD_LIST_FILE and not before
    return not before or (started <= confirmed and all(at(when) < confirmed for when in before))


def named(claims: list[PodClaim]) -> list[PodClaim]:
    """Complete names and UIDs: claims that have only one of them get the other.

    A source that reports both has priority over a match of the kubelet's list and checkpoint. An id
    that is listed under a name belongs to no other pod.
    """
    stated = {((one.namespace, one.name), one.uid) for one in claims if one.name and one.uid}
    pairs = set(stated)
    for claim in claims:
        if not claim.name:
            places = {
                (other.namespace, other.name)
                for other in claims
                if is_listed(other) and same_devices(claim, other)
            }
            if len(places) == 1 and not any(
                places == {place} or uid == claim.uid for place, uid in stated
            ):
                pairs.add((places.pop(), claim.uid))
    sure = [
        pair
        for pair in pairs
        if not any(
            pair != other and (pair[0] == other[0] or pair[1] == other[1]) for other in pairs
        )
    ]
    for claim in claims:
        places = {place for place, uid in stated if uid == claim.uid}
        if not claim.name and len(places) == 1:
            [(claim.namespace, claim.name)] = places
    for claim, (place, uid) in product(claims, sure):
        if not claim.name and claim.uid == uid:
            claim.namespace, claim.name = place
        elif claim.name and not claim.uid and (claim.namespace, claim.name) == place:
            claim.uid = uid
    taken = {
        (claim.claim.resource, raw.text)
        for claim in claims
        if is_listed(claim)
        for raw in claim.claim.asked or claim.claim.devices
    }
    return [left for claim in claims if (left := without(claim, taken)) is not None]


def is_listed(claim: PodClaim) -> bool:
    return bool(claim.claim.subject.pod) and not claim.claim.subject.uid


def without(claim: PodClaim, taken: set[tuple[str, str]]) -> PodClaim | None:
    """Remove the ids that are listed under a name from a claim whose pod has no name."""
    made = claim.claim
    if claim.name or claim.evidence < Evidence.PLUGIN_ANSWER or not made.resource:
        return claim
    ids = made.asked or made.devices
    left = [raw for raw in ids if (made.resource, raw.text) not in taken]
    if len(left) == len(ids):
        return claim
    if made.asked or not left:
        return None
    if not claim.found:
        return claim
    claim.found = [one for one in claim.found if any(one == claim.index.resolve(r) for r in left)]
    return claim if claim.found else None


def same_devices(one: PodClaim, other: PodClaim) -> bool:
    def ids(claim: PodClaim) -> set[str]:
        return {raw.text for raw in claim.claim.asked or claim.claim.devices}

    return (
        one.container == other.container
        and one.claim.resource == other.claim.resource
        and ids(one) == ids(other)
    )
