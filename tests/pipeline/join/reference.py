"""The rule of `pipeline.join.holder_resolution` once more, written down from its text, plain and
slow.

How ids are read is left to `DeviceIndex`, which has tests of its own.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from pipeline.join.device_index import DeviceIndex
from pipeline.model import Evidence, Instant, PartialRef
from tests.pipeline.join.cluster import SOURCES
from tests.pipeline.join.reports import PodName, Said, closed, named, sayings, with_parents
from tests.pipeline.join.worlds import Tables

Holding = tuple[float | None, str, Evidence, list[str]]
Shown = dict[str, tuple[dict[PartialRef, Holding], int]]


def expected(tables: Tables) -> Shown:
    """By device that is held: its holders and how many pods contradict."""
    present = {device.uuid for device in tables.devices}
    missing = [device for uuid, device in tables.ever.items() if uuid not in present]
    index = DeviceIndex([*missing, *tables.devices], tables.aliases)
    given_out = [said for said in sayings(tables, index) if said.found or said.vague]
    words = [said for said in named(given_out) if said.found]
    if "kubelet" in tables.claims and tables.claims["kubelet"].complete:
        words = [said for said in words if said.name or said.evidence <= Evidence.RUNTIME_ENV]
    pods = {said.about for said in words}
    shut = closed(tables, index) | {
        found.uuid
        for word in words
        if word.evidence is Evidence.KUBELET_IDS
        for found in word.found
        if not found.is_placeholder
    }
    shut = with_parents(shut, tables)
    for word in words:
        word.shut = shut
    stands = [
        said
        for about in pods
        for said in standing([said for said in words if said.about == about], shut)
        if said.real or index.single_gpu
    ]
    devices = [device.uuid for device in [*missing, *tables.devices]]
    shown = {uuid: decide(uuid, stands, words, lone=index.single_gpu) for uuid in devices}
    return {uuid: found for uuid, found in shown.items() if found[0]}


def standing(words: list[Said], shut: set[str]) -> list[Said]:
    """The table of trust within one pod."""
    limited = {Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV}
    left = [
        replace(word, found=[f for f in word.found if f.uuid not in shut])
        if word.evidence in limited
        else word
        for word in words
    ]
    left = [word for word in left if word.found]
    variables = [word for word in left if word.evidence is Evidence.RUNTIME_ENV]
    others = [word for word in left if word.evidence is not Evidence.RUNTIME_ENV]
    if not others:
        return []
    if any(word.real for word in others):
        return [one for word in best(others) for one in by_container(word, variables)]
    counts = Counter[str]()
    for word in others:
        counts[word.container] += len(word.claim.devices)
    which = [
        replace(word, parts=True) for word in variables if len(word.found) <= counts[word.container]
    ]
    return [one for word in best(others + which) for one in by_container(word, variables)]


def by_container(word: Said, variables: list[Said]) -> list[Said]:
    """What a pod as a whole was given, by the containers whose variables name it."""
    mine = {f.uuid for f in word.found}
    named = [
        replace(word, container=variable.container, found=variable.found)
        for variable in variables
        if not word.container and {f.uuid for f in variable.found} <= mine
    ]
    taken = {f.uuid for one in named for f in one.found}
    rest = [f for f in word.found if f.uuid not in taken]
    return named + ([replace(word, found=rest)] if rest else [])


def best(words: list[Said]) -> list[Said]:
    """Placeholders yield to real ids; then the strongest stands."""
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


def worth(word: Said) -> int:
    """What a device plugin answered and what it was asked for are the kubelet's words alike."""
    return next(rank for rank, kinds in enumerate(WORTH) if word.evidence in kinds)


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
    conflicts = set[PodName]()
    if len(all_pods) > 1 and parts != all_pods:
        ranks = {
            about: min(among_pods(said, everything, uuid) for said in on_it if said.about == about)
            for about in all_pods
        }
        strong = [said for said in on_it if ranks[said.about] == min(ranks.values())]
        pods = {said.about for said in strong}
        alone = any(said.about not in parts and wholly(said, everything, uuid) for said in strong)
        last = latest(strong) if len(pods) > 1 and alone else None
        if len(pods) > 1 and alone and last is None:
            conflicts = set(all_pods)
        if last is not None:
            pods = {last}
        on_it_strong = [said for said in strong if said.about in pods]
        if pods <= parts:
            pods = parts
            on_it_strong = [said for said in on_it if said.about in pods]
        on_it = on_it_strong
        conflicts = conflicts or all_pods - pods
    shown: dict[PartialRef, Holding] = {}
    holding = {said.about for said in on_it}
    given_out = set[PodName]()
    for about, container in {(said.about, said.container) for said in on_it}:
        mine = [said for said in on_it if (said.about, said.container) == (about, container)]
        first = min(SOURCES.index(said.source) for said in mine)
        word = min((said for said in mine if SOURCES.index(said.source) == first), key=how_much)
        share = share_of(word, everything, uuid)
        if share is None and len({(said.about, said.container) for said in on_it}) == 1:
            alone = about not in parts and wholly(word, everything, uuid)
            share = 1.0 if alone else None
        known = replicas(word, everything, uuid)
        shown[subject(word, everything)] = (share, word.source, word.evidence, known)
        if share is not None:
            given_out.add(about)
    total = sum(Fraction(share or 0) for share, *_ in shown.values())
    if total > 1 or (total == 1 and given_out != holding):
        conflicts |= holding
    if total > 1:
        shown = {ref: (None, said[1], said[2], said[3]) for ref, said in shown.items()}
    if holding - parts:
        for said in words:
            by_people = said.evidence in PEOPLE_S and said.on(uuid, counting=False)
            if by_people and said.about not in {
                w.about for w in stands if w.on(uuid, counting=lone)
            }:
                conflicts.add(said.about)
    return shown, len(conflicts)


WORTH = (
    {Evidence.RUNTIME_CDI},
    {Evidence.RUNTIME_NODES},
    {Evidence.PLUGIN_ANSWER, Evidence.KUBELET_IDS},
    {Evidence.SCHEDULER_ANNOTATION},
    {Evidence.POD_LIST_FILE},
    {Evidence.RUNTIME_ENV},
)
PEOPLE_S = {Evidence.SCHEDULER_ANNOTATION, Evidence.POD_LIST_FILE, Evidence.RUNTIME_ENV}
BETWEEN_PODS = (
    Evidence.PLUGIN_ANSWER,
    Evidence.KUBELET_IDS,
    Evidence.RUNTIME_CDI,
    Evidence.RUNTIME_NODES,
    Evidence.SCHEDULER_ANNOTATION,
    Evidence.POD_LIST_FILE,
    Evidence.RUNTIME_ENV,
)


def among_pods(said: Said, everything: list[Said], uuid: str) -> int:
    if not said.real:
        return len(BETWEEN_PODS)
    rank = BETWEEN_PODS.index(said.evidence)
    given = BETWEEN_PODS.index(Evidence.KUBELET_IDS)
    if given < rank and any(gives(one, uuid) for one in company(said, everything)):
        return given
    return rank


def gives(said: Said, uuid: str) -> bool:
    """Whether the kubelet gave the device to the pod alone."""
    if said.parts:
        return False
    if said.evidence is Evidence.PLUGIN_ANSWER:
        return bool(said.on(uuid, counting=False))
    return said.evidence is Evidence.KUBELET_IDS and any(
        found.is_whole_device for found in said.on(uuid, counting=False)
    )


def how_much(said: Said) -> tuple[object, ...]:
    return (said.claim.share is None, said.claim.share or 0, said.claim.subject.container_id)


def ended(said: Said) -> bool:
    pod = said.pod
    return pod is not None and any(c.ended for c in pod.containers if c.name == said.container)


def divisible(about: PodName, everything: list[Said], uuid: str, *, lone: bool) -> bool:
    """Whether a pod has a part of the device: by what is said of the part, else by its ids."""
    mine = [said for said in everything if said.about == about]
    if any(gives(said, uuid) for said in mine):
        return False
    shares = [s for said in mine if (s := share_said(said, everything, uuid)) is not None]
    if shares:
        return any(share < 1 for share in shares)
    ids = [found for said in mine for found in said.on(uuid, counting=lone)]
    parts = any(said.parts for said in mine)
    return parts or any(found.replica or found.is_placeholder for found in ids)


def share_said(said: Said, everything: list[Said], uuid: str) -> float | None:
    """The part that a claim tells of; which part a replica is, its device plugin alone says."""
    mine = [word for word in everything if word.about == said.about]
    if any(gives(word, uuid) for word in mine):
        return None
    plugin_s = uuid in said.shut or any(
        found.replica for word in mine for found in word.on(uuid, counting=True)
    )
    if plugin_s and said.evidence is Evidence.SCHEDULER_ANNOTATION:
        return None
    return said.claim.share


def company(word: Said, everything: list[Said]) -> list[Said]:
    """What is said of a container and the device, and of the pod if no other container has any."""
    pod_s = [said for said in everything if said.about == word.about]
    alone = len({said.container for said in pod_s if said.container}) == 1
    return [
        said
        for said in pod_s
        if said.container == word.container or (alone and word.container and not said.container)
    ]


def share_of(word: Said, everything: list[Said], uuid: str) -> float | None:
    own = share_said(word, everything, uuid)
    if own is not None:
        return own
    known = [
        (worth(said), share)
        for said in company(word, everything)
        if (share := share_said(said, everything, uuid)) is not None
    ]
    return min(known)[1] if known else None


def replicas(word: Said, everything: list[Said], uuid: str) -> list[str]:
    """All that anybody knows of, overruled or not."""
    ids = [found for said in company(word, everything) for found in said.on(uuid, counting=False)]
    return [str(number) for number in sorted({int(f.replica) for f in ids if f.replica})]


def wholly(word: Said, everything: list[Said], uuid: str) -> bool:
    """Whether it has all of the device, or the kubelet gave the device to it alone."""
    return share_of(word, everything, uuid) == 1 or any(
        gives(said, uuid) for said in company(word, everything)
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
