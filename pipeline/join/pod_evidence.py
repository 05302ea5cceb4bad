"""What stands of all that is said of one pod."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from pipeline.join.arbitration import Stake
from pipeline.join.claim_resolution import Word
from pipeline.join.device_index import Found
from pipeline.join.trust_rules import AMONG_PODS, IN_CONTAINER, SAID_BY_PEOPLE
from pipeline.model import Evidence


class Standing(NamedTuple):
    """What a pod is believed to hold.

    Attributes:
        words: all that is said of it.
        stakes: device uuids, and the claims on them that stand.
        unexplained: words that stand and are of placeholders alone, where the node has more than
            one GPU.
        denied: device uuids, and what annotations, files and variables say of them without effect.
        closed: the devices that only their device plugin gives out, as they were known; None where
            that makes no difference.
    """

    words: list[Word]
    stakes: list[tuple[str, Stake]]
    unexplained: list[Word]
    denied: list[tuple[str, Word]]
    closed: frozenset[str] | None


def sift(words: list[Word], *, lone: bool, closed: frozenset[str] = frozenset()) -> Standing:
    """Find out what stands.

    Args:
        words: all that is said of one pod, in the order of the sources.
        lone: the node has one GPU, so that a placeholder can't mean another.
        closed: the devices that a device plugin offers or gave out by their real ids: no scheduler
            gives them out.
    """
    limited = any(word.evidence in _LIMITED for word in words)
    standing = Standing(words, [], [], [], closed if limited else None)
    devices: dict[str, _OnDevice] | None = None
    stated = _open(words, closed) if limited else words
    for word in _not_overruled(stated):
        real = word.real
        if not real and not lone:
            standing.unexplained.append(word)
            continue
        for found in word.found:
            if real and found.placeholder:
                break
            if len(words) == len(word.found) == 1:
                on_it = _OnDevice([(word, found)], shut=found.uuid in closed)
            else:
                devices = devices or _by_device(words, lone=lone, closed=closed)
                on_it = devices[found.uuid]
            standing.stakes.append((found.uuid, on_it.stake(word, real=real)))
    if any(word.evidence in SAID_BY_PEOPLE for word in words):
        held = {uuid for uuid, _ in standing.stakes}
        standing.denied.extend(
            (found.uuid, word)
            for word in words
            if word.evidence in SAID_BY_PEOPLE
            for found in word.found
            if found.uuid not in held and not found.placeholder
        )
    return standing


_LIMITED: Final = frozenset({Evidence.SCHEDULER_ANNOTATION, Evidence.RUNTIME_ENV})
"""What has no say on a device that only its device plugin gives out."""


def _open(words: list[Word], closed: frozenset[str]) -> list[Word]:
    """Return what may say who holds what: without what is said of devices that are closed.

    A reserved device is closed to all but those that share the reservation.
    What the configuration's annotations say is the administrator's word, and not limited.
    """
    found: list[Word] = []
    for word in words:
        if word.evidence not in _LIMITED or word.claim.vouched:
            found.append(word)
            continue
        left = [one for one in word.found if one.reserved or one.uuid not in closed]
        if left:
            found.append(word if len(left) == len(word.found) else word._replace(found=left))
    return found


def _not_overruled(words: list[Word]) -> list[Word]:
    others = [word for word in words if word.evidence != Evidence.RUNTIME_ENV]
    if not others:
        return []
    variables = [word for word in words if word.evidence == Evidence.RUNTIME_ENV]
    if not variables:
        return _best(others)
    return _which_container(_best(others + _which_device(variables, others)), variables)


def _which_device(variables: list[Word], others: list[Word]) -> list[Word]:
    """Return the variables that say which device a placeholder means, where nothing else does."""
    counts: dict[str, int] = {}
    for word in others:
        if word.real:
            return []
        name = word.subject.container
        counts[name] = counts.get(name, 0) + len(word.claim.devices)
    return [
        word._replace(parts=True)
        for word in variables
        if len(word.found) <= counts.get(word.subject.container, 0)
    ]


def _which_container(words: list[Word], variables: list[Word]) -> list[Word]:
    """Let variables say which containers have what a pod as a whole was given."""
    found: list[Word] = []
    for word in words:
        devices = {one.uuid for one in word.found}
        named = [
            word._replace(subject=variable.subject, found=variable.found)
            for variable in variables
            if not word.subject.container and devices.issuperset(f.uuid for f in variable.found)
        ]
        left = devices.difference(f.uuid for one in named for f in one.found)
        if left or not named:
            rest = [one for one in word.found if one.uuid in left]
            found.append(word._replace(found=rest) if named else word)
        found += named
    return found


def _best(words: list[Word]) -> list[Word]:
    if len(words) == 1:
        return words
    real = [word for word in words if word.real]
    if not real:
        return _strongest(words)
    # A container of which nothing but placeholders is said, beside others that are known better.
    known = {word.subject.container for word in real}
    if "" in known:
        return _strongest(real)
    known.add("")
    return _strongest(real) + _strongest([w for w in words if w.subject.container not in known])


def _strongest(words: list[Word]) -> list[Word]:
    """Return what rests on the strongest evidence for each container."""
    answered = {
        (word.subject.container, word.claim.resource)
        for word in words
        if word.evidence == Evidence.PLUGIN_ANSWER
    }
    if answered:
        words = [
            word
            for word in words
            if word.evidence != Evidence.KUBELET_IDS
            or (word.subject.container, word.claim.resource) not in answered
        ]
    best: dict[str, int] = {}
    for word in words:
        name = word.subject.container
        best[name] = min(_rank(word), best.get(name, _rank(word)))
    whole = best.pop("", None)
    if whole is not None:
        if any(rank < whole for rank in best.values()):
            # Then what is known of the containers is worth more.
            whole = None
        else:
            best = {name: whole for name, rank in best.items() if rank == whole}
            best[""] = whole
    return [word for word in words if best.get(word.subject.container) == _rank(word)]


_KUBELET: Final = (IN_CONTAINER[Evidence.PLUGIN_ANSWER], IN_CONTAINER[Evidence.KUBELET_IDS])


def _rank(word: Word) -> int:
    """Return a word's rank, the two of the kubelet as one."""
    return _KUBELET[0] if word.rank == _KUBELET[1] else word.rank


def _by_device(words: list[Word], *, lone: bool, closed: frozenset[str]) -> dict[str, "_OnDevice"]:
    said: dict[str, list[tuple[Word, Found]]] = {}
    for word in words:
        for found in word.found:
            if lone or not found.placeholder:
                said.setdefault(found.uuid, []).append((word, found))
    return {uuid: _OnDevice(on_it, shut=uuid in closed) for uuid, on_it in said.items()}


class _Facts(NamedTuple):
    """What all that is said of a container and a device comes to.

    Attributes:
        share: part of the device, if known.
        given: the kubelet gave it the device as a whole.
        container_id: the runtime's, if known.
        replicas: the numbers of its replicas.
    """

    share: float | None
    given: bool
    container_id: str
    replicas: tuple[str, ...]


class _OnDevice:
    """What is said of one pod and one device, overruled or not.

    What is overruled may still know better how much of the device it is.
    """

    def __init__(self, said: Iterable[tuple[Word, Found]], *, shut: bool) -> None:
        self._said: dict[str, list[tuple[Word, Found]]] = {}
        replicated = False
        self._given = False
        self._shut = shut
        for word, found in said:
            self._said.setdefault(word.subject.container, []).append((word, found))
            replicated = replicated or word.parts or found.placeholder or found.reserved
            self._given = self._given or _excludes(word, found)
            # Which part a replica is, is the device plugin's to say.
            self._shut = self._shut or found.replica != ""
        every = [self._share(word) for mine in self._said.values() for word, _ in mine]
        shares = [share for share in every if share is not None]
        # An id of a share tells that others may have some, a share whether they can. What the
        # kubelet gave to one pod alone is made smaller by nobody.
        self._divisible = not self._given and (min(shares) < 1 if shares else replicated)
        self._facts: dict[str, _Facts] = {}

    def stake(self, word: Word, *, real: bool) -> Stake:
        """Return a word that stands, with what all others know of its container."""
        name, claim = word.subject.container, word.claim
        if name not in self._facts:
            self._facts[name] = self._gather(name)
        share, given, container_id, replicas = self._facts[name]
        return Stake(
            word.subject,
            word.pod,
            word.evidence,
            word.source,
            share if (own := self._share(word)) is None else own,
            self._divisible,
            given,
            _among_pods(word.evidence, given=given, real=real),
            claim.since,
            claim.subject.container_id or container_id,
            replicas,
        )

    def _share(self, word: Word) -> float | None:
        """Return the part that a claim tells of, as far as its evidence may."""
        if self._given:
            return None
        said = word.evidence == Evidence.SCHEDULER_ANNOTATION and not word.claim.vouched
        if self._shut and said and not word.found[0].reserved:
            return None
        return word.claim.share

    def _gather(self, name: str) -> "_Facts":
        mine = self._said[name]
        if name and len(self._said) - ("" in self._said) == 1:
            # A part of the pod's is this container's if no other container has any of it.
            mine = mine + self._said.get("", [])
        shares = [(w.rank, share) for w, _ in mine if (share := self._share(w)) is not None]
        given = any(_excludes(w, f) for w, f in mine)
        ids = [w.claim.subject.container_id for w, _ in mine if w.claim.subject.container_id]
        replicas = {f.replica for _, f in mine if f.replica}
        return _Facts(
            min(shares)[1] if shares else None,
            given,
            min(ids, default=""),
            tuple(sorted(replicas, key=lambda number: (len(number), number))),
        )


def _excludes(word: Word, found: Found) -> bool:
    """Whether the kubelet gave the device to one pod alone."""
    if word.evidence == Evidence.PLUGIN_ANSWER:
        return not word.parts
    if word.claim.share is not None and word.claim.share < 1:  # by the source itself
        return False
    return word.evidence == Evidence.KUBELET_IDS and found.whole and not word.parts


def _among_pods(evidence: Evidence, *, given: bool, real: bool) -> int:
    """Return a claim's rank between pods, by the strongest that is said of its device."""
    if not real:
        return len(AMONG_PODS) + 1
    rank = AMONG_PODS[evidence]
    return min(rank, AMONG_PODS[Evidence.KUBELET_IDS]) if given else rank
