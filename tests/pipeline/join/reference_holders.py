"""The rules of `pipeline.join.holder_resolution`, implemented again in a simple and slow way.

`DeviceIndex` resolves the ids; it has tests of its own.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from pipeline.join.device_index import DeviceIndex
from pipeline.model import Evidence, Instant, PartialRef
from tests.pipeline.join.cluster import SOURCES
from tests.pipeline.join.reference_claims import (
    PodClaim,
    PodName,
    named,
    offered_by_plugins,
    reported_claims,
    with_parents,
)
from tests.pipeline.join.worlds import Tables

Holding = tuple[float | None, str, Evidence, list[str]]
Shown = dict[str, tuple[dict[PartialRef, Holding], int]]


def expected(tables: Tables) -> Shown:
    """Return the holders and the number of conflicting pods of each device that is held."""
    present = {device.uuid for device in tables.devices}
    missing = [device for uuid, device in tables.ever.items() if uuid not in present]
    index = DeviceIndex([*missing, *tables.devices], tables.aliases)
    all_claims = [one for one in reported_claims(tables, index) if one.found or one.vague]
    claims = [one for one in named(all_claims) if one.found]
    if "kubelet" in tables.claims and tables.claims["kubelet"].complete:
        claims = [one for one in claims if one.name or one.evidence <= Evidence.RUNTIME_ENV]
    pods = {one.about for one in claims}
    plugin_managed = offered_by_plugins(tables, index) | {
        found.uuid
        for claim in claims
        if claim.evidence is Evidence.KUBELET_IDS
        for found in claim.found
        if not found.is_placeholder
    }
    plugin_managed = with_parents(plugin_managed, tables)
    for claim in claims:
        claim.plugin_managed = plugin_managed
    valid = [
        claim
        for about in pods
        for claim in valid_claims([one for one in claims if one.about == about], plugin_managed)
        if claim.real or index.single_gpu
    ]
    devices = [device.uuid for device in [*missing, *tables.devices]]
    shown = {uuid: decide(uuid, valid, claims, single=index.single_gpu) for uuid in devices}
    return {uuid: found for uuid, found in shown.items() if found[0]}


def valid_claims(claims: list[PodClaim], plugin_managed: set[str]) -> list[PodClaim]:
    """Return the valid claims of one pod, by the table of trust."""
    limited = {Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV}
    left = [
        replace(claim, found=[f for f in claim.found if f.uuid not in plugin_managed])
        if claim.evidence in limited
        else claim
        for claim in claims
    ]
    left = [claim for claim in left if claim.found]
    variables = [claim for claim in left if claim.evidence is Evidence.RUNTIME_ENV]
    others = [claim for claim in left if claim.evidence is not Evidence.RUNTIME_ENV]
    if not others:
        return []
    if any(claim.real for claim in others):
        return [one for claim in best(others) for one in by_container(claim, variables)]
    counts = Counter[str]()
    for claim in others:
        counts[claim.container] += len(claim.claim.devices)
    which = [
        replace(claim, parts=True)
        for claim in variables
        if len(claim.found) <= counts[claim.container]
    ]
    return [one for claim in best(others + which) for one in by_container(claim, variables)]


def by_container(claim: PodClaim, variables: list[PodClaim]) -> list[PodClaim]:
    """Split a claim on a whole pod by the containers whose variables name its devices."""
    mine = {f.uuid for f in claim.found}
    by_name = [
        replace(claim, container=variable.container, found=variable.found)
        for variable in variables
        if not claim.container and {f.uuid for f in variable.found} <= mine
    ]
    taken = {f.uuid for one in by_name for f in one.found}
    rest = [f for f in claim.found if f.uuid not in taken]
    return by_name + ([replace(claim, found=rest)] if rest else [])


def best(claims: list[PodClaim]) -> list[PodClaim]:
    """Return the strongest claims. Placeholders count only where there are no real ids."""
    real = [claim for claim in claims if claim.real]
    yielding = [
        claim
        for claim in claims
        if not claim.real
        and not any(
            "" in {claim.container, r.container} or r.container == claim.container for r in real
        )
    ]
    return strongest(real) + strongest(yielding)


def strongest(claims: list[PodClaim]) -> list[PodClaim]:
    claims = [claim for claim in claims if not replaced_by_answer(claim, claims)]
    of_pod = [rank_in_pod(claim) for claim in claims if not claim.container]
    of_containers = [rank_in_pod(claim) for claim in claims if claim.container]
    best_of_pod = min(of_pod, default=None)
    if best_of_pod is not None and best_of_pod <= min(of_containers, default=best_of_pod):
        return [claim for claim in claims if rank_in_pod(claim) == best_of_pod]
    return [
        claim
        for claim in claims
        if claim.container
        and rank_in_pod(claim)
        == min(rank_in_pod(other) for other in claims if other.container == claim.container)
    ]


def rank_in_pod(claim: PodClaim) -> int:
    """Return the rank of the evidence. Plugin answers and requested ids have the same rank."""
    return next(rank for rank, kinds in enumerate(RANKS_IN_POD) if claim.evidence in kinds)


def replaced_by_answer(claim: PodClaim, claims: list[PodClaim]) -> bool:
    return claim.evidence == Evidence.KUBELET_IDS and any(
        other.evidence == Evidence.PLUGIN_ANSWER
        and other.container == claim.container
        and other.claim.resource == claim.claim.resource
        for other in claims
    )


def decide(
    uuid: str, valid: list[PodClaim], claims: list[PodClaim], *, single: bool
) -> tuple[dict[PartialRef, Holding], int]:
    """Apply rules 4 to 8 to one device; `single` says that the node has only one GPU."""
    on_it = [one for one in valid if one.ids_on(uuid, counting=not one.real)]
    everything = [one for one in claims if one.ids_on(uuid, counting=single)]
    live = {one.about for one in on_it if not ended(one)}
    on_it = [one for one in on_it if one.about not in live or not ended(one)]
    all_pods = {one.about for one in on_it}
    parts = {about for about in all_pods if divisible(about, everything, uuid, single=single)}
    pods = set(all_pods)
    conflicts = set[PodName]()
    if len(all_pods) > 1 and parts != all_pods:
        ranks = {
            about: min(
                rank_among_pods(one, everything, uuid) for one in on_it if one.about == about
            )
            for about in all_pods
        }
        strong = [one for one in on_it if ranks[one.about] == min(ranks.values())]
        pods = {one.about for one in strong}
        exclusive = any(one.about not in parts and wholly(one, everything, uuid) for one in strong)
        last = latest(strong) if len(pods) > 1 and exclusive else None
        if len(pods) > 1 and exclusive and last is None:
            conflicts = set(all_pods)
        if last is not None:
            pods = {last}
        on_it_strong = [one for one in strong if one.about in pods]
        if pods <= parts:
            pods = parts
            on_it_strong = [one for one in on_it if one.about in pods]
        on_it = on_it_strong
        conflicts = conflicts or all_pods - pods
    shown: dict[PartialRef, Holding] = {}
    holding = {one.about for one in on_it}
    with_share = set[PodName]()
    for about, container in {(one.about, one.container) for one in on_it}:
        mine = [one for one in on_it if (one.about, one.container) == (about, container)]
        first = min(SOURCES.index(one.source) for one in mine)
        claim = min((one for one in mine if SOURCES.index(one.source) == first), key=how_much)
        share = share_of(claim, everything, uuid)
        if share is None and len({(one.about, one.container) for one in on_it}) == 1:
            exclusive = about not in parts and wholly(claim, everything, uuid)
            share = 1.0 if exclusive else None
        known = replicas(claim, everything, uuid)
        shown[subject(claim, everything)] = (share, claim.source, claim.evidence, known)
        if share is not None:
            with_share.add(about)
    total = sum(Fraction(share or 0) for share, *_ in shown.values())
    if total > 1 or (total == 1 and with_share != holding):
        conflicts |= holding
    if total > 1:
        shown = {ref: (None, one[1], one[2], one[3]) for ref, one in shown.items()}
    if holding - parts:
        for one in claims:
            by_user = one.evidence in WRITTEN_BY_USERS and one.ids_on(uuid, counting=False)
            if by_user and one.about not in {
                other.about for other in valid if other.ids_on(uuid, counting=single)
            }:
                conflicts.add(one.about)
    return shown, len(conflicts)


RANKS_IN_POD = (
    {Evidence.RUNTIME_CDI},
    {Evidence.RUNTIME_NODES},
    {Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS},
    {Evidence.SCHEDULER_ANNOTATION},
    {Evidence.POD_LIST_FILE},
    {Evidence.RUNTIME_ENV},
)
WRITTEN_BY_USERS = {
    Evidence.SCHEDULER_ANNOTATION,
    Evidence.POD_LIST_FILE,
    Evidence.RUNTIME_ENV,
}
RANKS_AMONG_PODS = (
    Evidence.PLUGIN_ANSWER,
    Evidence.KUBELET_IDS,
    Evidence.RUNTIME_CDI,
    Evidence.RUNTIME_NODES,
    Evidence.SCHEDULER_ANNOTATION,
    Evidence.POD_LIST_FILE,
    Evidence.RUNTIME_ENV,
)


def rank_among_pods(claim: PodClaim, everything: list[PodClaim], uuid: str) -> int:
    if not claim.real:
        return len(RANKS_AMONG_PODS)
    rank = RANKS_AMONG_PODS.index(claim.evidence)
    kubelet = RANKS_AMONG_PODS.index(Evidence.KUBELET_IDS)
    if kubelet < rank and any(allocates_whole(one, uuid) for one in related(claim, everything)):
        return kubelet
    return rank


def allocates_whole(claim: PodClaim, uuid: str) -> bool:
    """Whether the kubelet allocated the whole device to the pod."""
    if claim.parts:
        return False
    if claim.evidence is Evidence.PLUGIN_ANSWER:
        return bool(claim.ids_on(uuid, counting=False))
    return claim.evidence is Evidence.KUBELET_IDS and any(
        found.is_whole_device for found in claim.ids_on(uuid, counting=False)
    )


def how_much(claim: PodClaim) -> tuple[object, ...]:
    return (claim.claim.share is None, claim.claim.share or 0, claim.claim.subject.container_id)


def ended(claim: PodClaim) -> bool:
    pod = claim.pod
    return pod is not None and any(c.ended for c in pod.containers if c.name == claim.container)


def divisible(about: PodName, everything: list[PodClaim], uuid: str, *, single: bool) -> bool:
    """Whether a pod has a part of the device: by the reported share, otherwise by its ids."""
    mine = [one for one in everything if one.about == about]
    if any(allocates_whole(one, uuid) for one in mine):
        return False
    shares = [s for one in mine if (s := reported_share(one, everything, uuid)) is not None]
    if shares:
        return any(share < 1 for share in shares)
    ids = [found for one in mine for found in one.ids_on(uuid, counting=single)]
    parts = any(one.parts for one in mine)
    return parts or any(found.replica or found.is_placeholder for found in ids)


def reported_share(claim: PodClaim, everything: list[PodClaim], uuid: str) -> float | None:
    """Return the share of a claim. Only a device plugin knows the share of a replica."""
    mine = [one for one in everything if one.about == claim.about]
    if any(allocates_whole(one, uuid) for one in mine):
        return None
    by_plugin = uuid in claim.plugin_managed or any(
        found.replica for one in mine for found in one.ids_on(uuid, counting=True)
    )
    if by_plugin and claim.evidence is Evidence.SCHEDULER_ANNOTATION:
        return None
    return claim.claim.share


def related(claim: PodClaim, everything: list[PodClaim]) -> list[PodClaim]:
    """Return the claims on the same container.

    Claims on the whole pod are included if no other container has any of the device.
    """
    of_pod = [one for one in everything if one.about == claim.about]
    only_one = len({one.container for one in of_pod if one.container}) == 1
    return [
        one
        for one in of_pod
        if one.container == claim.container or (only_one and claim.container and not one.container)
    ]


def share_of(claim: PodClaim, everything: list[PodClaim], uuid: str) -> float | None:
    own = reported_share(claim, everything, uuid)
    if own is not None:
        return own
    known = [
        (rank_in_pod(one), share)
        for one in related(claim, everything)
        if (share := reported_share(one, everything, uuid)) is not None
    ]
    return min(known)[1] if known else None


def replicas(claim: PodClaim, everything: list[PodClaim], uuid: str) -> list[str]:
    """Return all replicas that any claim names, valid or not."""
    ids = [
        found for one in related(claim, everything) for found in one.ids_on(uuid, counting=False)
    ]
    return [str(number) for number in sorted({int(f.replica) for f in ids if f.replica})]


def wholly(claim: PodClaim, everything: list[PodClaim], uuid: str) -> bool:
    """Whether it has all of the device, or the kubelet allocated the whole device to it."""
    return share_of(claim, everything, uuid) == 1 or any(
        allocates_whole(one, uuid) for one in related(claim, everything)
    )


def latest(claims: list[PodClaim]) -> PodName | None:
    starts: dict[PodName, Instant] = {}
    for claim in claims:
        times = [claim.claim.since]
        if claim.pod is not None:
            own = [c.started for c in claim.pod.containers if c.name == claim.container]
            times = [claim.pod.started, *own]
        start = next((time for time in times if time is not None), None)
        if start is None:
            return None
        starts[claim.about] = max(start, starts.get(claim.about, start))
    last = [about for about, start in starts.items() if start == max(starts.values())]
    return last[0] if len(last) == 1 else None


def subject(claim: PodClaim, everything: list[PodClaim]) -> PartialRef:
    ids = [
        one.claim.subject.container_id
        for one in related(claim, everything)
        if one.claim.subject.container_id
    ]
    container_id = claim.claim.subject.container_id or min(ids, default="")
    return PartialRef(claim.namespace, claim.name, claim.container, claim.uid, container_id)
