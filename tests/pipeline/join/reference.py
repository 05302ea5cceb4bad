"""The rule of `pipeline.join.resolution` once more, written down from its text, plain and slow.

How ids are read is left to `DeviceIndex`, which has tests of its own.
"""

from dataclasses import dataclass
from itertools import product

from pipeline.join.identity import DeviceIndex, Found
from pipeline.model import NS, Claim, Evidence, Instant, PartialRef, Pod
from tests.pipeline.join.cluster import SOURCES
from tests.pipeline.join.worlds import Tables
from tests.support.nodes import at

Holding = tuple[float | None, str, Evidence, list[str]]
Shown = dict[str, tuple[dict[PartialRef, Holding], int]]
PodName = tuple[str, str, str]


@dataclass
class Said:
    """A claim, and what it is about as far as it is known."""

    source: str
    claim: Claim
    found: list[Found]
    namespace: str
    name: str
    uid: str
    container: str
    pod: Pod | None

    @property
    def evidence(self) -> Evidence:
        return self.claim.origin.evidence

    @property
    def about(self) -> PodName:
        return (self.namespace, self.name, self.uid)

    @property
    def real(self) -> bool:
        return any(not found.placeholder for found in self.found)

    def on(self, uuid: str, *, counting: bool) -> list[Found]:
        return [f for f in self.found if f.uuid == uuid and (counting or not f.placeholder)]


def expected(tables: Tables) -> Shown:
    """By device that is held: its holders and how many pods contradict."""
    present = {device.uuid for device in tables.devices}
    missing = [device for uuid, device in tables.ever.items() if uuid not in present]
    index = DeviceIndex([*missing, *tables.devices], tables.aliases)
    words = named([said for said in sayings(tables, index) if said.found])
    if "kubelet" in tables.claims and tables.claims["kubelet"].complete:
        words = [said for said in words if said.name or said.evidence <= Evidence.RUNTIME_ENV]
    pods = {said.about for said in words}
    stands = [
        said
        for about in pods
        for said in standing([said for said in words if said.about == about])
        if said.real or index.lone
    ]
    devices = [device.uuid for device in [*missing, *tables.devices]]
    shown = {uuid: decide(uuid, stands, words, lone=index.lone) for uuid in devices}
    return {uuid: found for uuid, found in shown.items() if found[0]}


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
            runtime = claim.origin.evidence in {Evidence.RUNTIME_ENV, Evidence.RUNTIME_CDI}
            pod = meant(ref, tables.pods)
            if pod is None:
                unheard_of = not ref.pod and tables.listed
                if runtime or not (gone(ref, tables.gone) or unheard_of):
                    where = (ref.namespace, ref.pod, ref.uid, ref.container)
                    found.append(Said(source, claim, ids, *where, None))
                continue
            by_name = not ref.uid and not took_on(tables, pod, source)
            early = claim.origin.evidence is Evidence.SCHEDULER_ANNOTATION and pod.started is None
            if not runtime and (pod.ended or by_name or early):
                continue
            lasting = [c.name for c in pod.containers if c.kind not in {"init", "ephemeral"}]
            container = ref.container or (lasting[0] if len(lasting) == 1 else "")
            info = pod.info
            found.append(
                Said(source, claim, ids, info.namespace, info.name, info.uid, container, pod)
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


def took_on(tables: Tables, pod: Pod, source: str) -> bool:
    """Whether the kubelet had taken the pod on when the source stood by its word."""
    said: Instant = at(tables.confirmed[source])
    if pod.started is None:
        return False
    second_after = pod.started.wall_ns + NS
    return second_after <= said.wall_ns or at(tables.taken_on[pod.info.uid]) <= said


def named(words: list[Said]) -> list[Said]:
    """Names for those who know uids alone, and uids for those who know names alone."""
    pairs = {((w.namespace, w.name), w.uid) for w in words if w.name and w.uid}
    for word in words:
        if not word.name:
            places = {
                (other.namespace, other.name)
                for other in words
                if not other.uid and same_devices(word, other)
            }
            if len(places) == 1:
                pairs.add((places.pop(), word.uid))
    sure = [
        pair
        for pair in pairs
        if not any(
            pair != other and (pair[0] == other[0] or pair[1] == other[1]) for other in pairs
        )
    ]
    for word, (place, uid) in product(words, sure):
        if not word.name and word.uid == uid:
            word.namespace, word.name = place
        elif word.name and not word.uid and (word.namespace, word.name) == place:
            word.uid = uid
    return words


def same_devices(one: Said, other: Said) -> bool:
    def asked(said: Said) -> set[str]:
        return {raw.text for raw in said.claim.asked or said.claim.devices}

    return (
        one.container == other.container
        and one.claim.resource == other.claim.resource
        and asked(one) == asked(other)
    )


def standing(words: list[Said]) -> list[Said]:
    """Rules 3 and 2, for one pod."""
    real = [word for word in words if word.real]
    yielding = [
        word
        for word in words
        if not word.real
        and not any(
            "" in {word.container, r.container} or r.container == word.container for r in real
        )
    ]
    return strongest(real) + strongest(yielding)


def strongest(words: list[Said]) -> list[Said]:
    words = [word for word in words if not answered_otherwise(word, words)]
    of_pod = [worth(word) for word in words if not word.container]
    of_containers = [worth(word) for word in words if word.container]
    best_of_pod = min(of_pod, default=None)
    if best_of_pod is not None and best_of_pod <= min(of_containers, default=best_of_pod):
        return [word for word in words if worth(word) == best_of_pod]
    return [
        word
        for word in words
        if word.container
        and worth(word) == min(worth(w) for w in words if w.container == word.container)
    ]


def worth(word: Said) -> Evidence:
    """What a device plugin answered and what it was asked for are the kubelet's words alike."""
    kubelet_s = word.evidence in {Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS}
    return Evidence.KUBELET_IDS if kubelet_s else word.evidence


def answered_otherwise(word: Said, words: list[Said]) -> bool:
    return word.evidence == Evidence.KUBELET_IDS and any(
        other.evidence == Evidence.PLUGIN_ANSWER
        and other.container == word.container
        and other.claim.resource == word.claim.resource
        for other in words
    )


def decide(
    uuid: str, stands: list[Said], words: list[Said], *, lone: bool
) -> tuple[dict[PartialRef, Holding], int]:
    """Rules 4 to 8, for one device."""
    on_it = [said for said in stands if said.on(uuid, counting=not said.real)]
    everything = [said for said in words if said.on(uuid, counting=lone)]
    live = {said.about for said in on_it if not ended(said)}
    on_it = [said for said in on_it if said.about not in live or not ended(said)]
    all_pods = {said.about for said in on_it}
    parts = {about for about in all_pods if divisible(about, everything, uuid, lone=lone)}
    pods = set(all_pods)
    conflicts = 0
    if len(all_pods) > 1 and parts != all_pods:
        given_some = {w.about for w in words if w.evidence is not Evidence.RUNTIME_ENV}
        believed = [said for said in on_it if said.about in given_some] or on_it
        best = min(said.evidence for said in believed)
        strong = [said for said in believed if said.evidence == best]
        pods = {said.about for said in strong}
        alone = any(said.about not in parts and wholly(said, everything, uuid) for said in strong)
        last = latest(strong) if len(pods) > 1 and alone else None
        if len(pods) > 1 and alone and last is None:
            conflicts = len(all_pods)
        if last is not None:
            pods = {last}
        on_it_strong = [said for said in strong if said.about in pods]
        if pods <= parts:
            pods = parts
            on_it_strong = [said for said in on_it if said.about in pods]
        on_it = on_it_strong
        conflicts = conflicts or len(all_pods - pods)
    shown: dict[PartialRef, Holding] = {}
    for about, container in {(said.about, said.container) for said in on_it}:
        mine = [said for said in on_it if (said.about, said.container) == (about, container)]
        first = min(SOURCES.index(said.source) for said in mine)
        word = min((said for said in mine if SOURCES.index(said.source) == first), key=how_much)
        share = share_of(word, everything)
        if share is None and len({(said.about, said.container) for said in on_it}) == 1:
            alone = about not in parts and wholly(word, everything, uuid)
            share = 1.0 if alone else None
        known = replicas(word, everything, uuid)
        shown[subject(word, everything)] = (share, word.source, word.evidence, known)
    if sum(share or 0 for share, *_ in shown.values()) > 1 + 1e-12:
        shown = {ref: (None, said[1], said[2], said[3]) for ref, said in shown.items()}
        conflicts = max(conflicts, len({said.about for said in on_it}))
    return shown, conflicts


def how_much(said: Said) -> tuple[object, ...]:
    return (said.claim.share is None, said.claim.share or 0, said.claim.subject.container_id)


def ended(said: Said) -> bool:
    pod = said.pod
    return pod is not None and any(c.ended for c in pod.containers if c.name == said.container)


def divisible(about: PodName, everything: list[Said], uuid: str, *, lone: bool) -> bool:
    """Whether a pod has a part of the device: by what is said of the part, else by its ids."""
    mine = [said for said in everything if said.about == about]
    shares = [said.claim.share for said in mine if said.claim.share is not None]
    if shares:
        return any(share < 1 for share in shares)
    ids = [found for said in mine for found in said.on(uuid, counting=lone)]
    return any(found.replica or found.placeholder for found in ids)


def company(word: Said, everything: list[Said]) -> list[Said]:
    """What is said of a container and the device, and of the pod if no other container has any."""
    pod_s = [said for said in everything if said.about == word.about]
    alone = len({said.container for said in pod_s if said.container}) == 1
    return [
        said
        for said in pod_s
        if said.container == word.container or (alone and word.container and not said.container)
    ]


def share_of(word: Said, everything: list[Said]) -> float | None:
    if word.claim.share is not None:
        return word.claim.share
    known = [
        (said.evidence, said.claim.share)
        for said in company(word, everything)
        if said.claim.share is not None
    ]
    return min(known)[1] if known else None


def replicas(word: Said, everything: list[Said], uuid: str) -> list[str]:
    """All that anybody knows of, overruled or not."""
    ids = [found for said in company(word, everything) for found in said.on(uuid, counting=False)]
    return [str(number) for number in sorted({int(f.replica) for f in ids if f.replica})]


def wholly(word: Said, everything: list[Said], uuid: str) -> bool:
    """Whether it has all of the device, or the kubelet gave the device to it alone."""
    return share_of(word, everything) == 1 or any(
        found.whole
        for said in company(word, everything)
        if said.evidence is Evidence.KUBELET_IDS
        for found in said.on(uuid, counting=False)
    )


def latest(words: list[Said]) -> PodName | None:
    starts: dict[PodName, Instant] = {}
    for said in words:
        times = [said.claim.since]
        if said.pod is not None:
            own = [c.started for c in said.pod.containers if c.name == said.container]
            times = [said.pod.started, *own]
        start = next((time for time in times if time is not None), None)
        if start is None:
            return None
        starts[said.about] = max(start, starts.get(said.about, start))
    last = [about for about, start in starts.items() if start == max(starts.values())]
    return last[0] if len(last) == 1 else None


def subject(word: Said, everything: list[Said]) -> PartialRef:
    ids = [
        said.claim.subject.container_id
        for said in company(word, everything)
        if said.claim.subject.container_id
    ]
    container_id = word.claim.subject.container_id or min(ids, default="")
    return PartialRef(word.namespace, word.name, word.container, word.uid, container_id)
