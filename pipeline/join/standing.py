"""What stands of all that is said of one pod."""

from collections.abc import Iterable
from typing import NamedTuple

from pipeline.join.identity import Found
from pipeline.join.weighing import Stake
from pipeline.join.words import Word
from pipeline.model import Evidence


class Standing(NamedTuple):
    """What a pod is believed to hold.

    Attributes:
        words: all that is said of it.
        stakes: device uuids, and the claims on them that stand.
        unexplained: words that stand and are of placeholders alone, where the node has more than
            one GPU.
    """

    words: list[Word]
    stakes: list[tuple[str, Stake]]
    unexplained: list[Word]


def sift(words: list[Word], *, lone: bool) -> Standing:
    """Find out what stands.

    Args:
        words: all that is said of one pod, in the order of the sources.
        lone: the node has one GPU, so that a placeholder can't mean another.
    """
    standing = Standing(words, [], [])
    backed = any(word.evidence != Evidence.RUNTIME_ENV for word in words)
    devices: dict[str, _OnDevice] | None = None
    for word in _not_overruled(words):
        real = word.real
        if not real and not lone:
            standing.unexplained.append(word)
            continue
        for found in word.found:
            if real and found.placeholder:
                break
            if len(words) == len(word.found) == 1:
                on_it = _OnDevice([(word, found)])
            else:
                devices = devices or _by_device(words, lone=lone)
                on_it = devices[found.uuid]
            standing.stakes.append((found.uuid, on_it.stake(word, backed=backed)))
    return standing


def _not_overruled(words: list[Word]) -> list[Word]:
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
    best: dict[str, Evidence] = {}
    for word in words:
        name = word.subject.container
        best[name] = min(_rank(word.evidence), best.get(name, _rank(word.evidence)))
    whole = best.pop("", None)
    if whole is not None:
        if any(evidence < whole for evidence in best.values()):
            # Then what is known of the containers is worth more.
            whole = None
        else:
            best = {name: whole for name, evidence in best.items() if evidence == whole}
            best[""] = whole
    return [word for word in words if best.get(word.subject.container) == _rank(word.evidence)]


def _rank(evidence: Evidence) -> Evidence:
    """Return the evidence, the two words of the kubelet as one."""
    return min(evidence, Evidence.PLUGIN_ANSWER)


def _by_device(words: list[Word], *, lone: bool) -> dict[str, "_OnDevice"]:
    said: dict[str, list[tuple[Word, Found]]] = {}
    for word in words:
        for found in word.found:
            if lone or not found.placeholder:
                said.setdefault(found.uuid, []).append((word, found))
    return {uuid: _OnDevice(on_it) for uuid, on_it in said.items()}


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

    def __init__(self, said: Iterable[tuple[Word, Found]]) -> None:
        self._said: dict[str, list[tuple[Word, Found]]] = {}
        shares: list[float] = []
        replicated = False
        for word, found in said:
            self._said.setdefault(word.subject.container, []).append((word, found))
            replicated = replicated or found.replica != "" or found.placeholder
            replicated = replicated or found.reserved
            if word.claim.share is not None:
                shares.append(word.claim.share)
        # An id of a share tells that others may have some, a share whether they can.
        self._divisible = min(shares) < 1 if shares else replicated
        self._facts: dict[str, _Facts] = {}

    def stake(self, word: Word, *, backed: bool) -> Stake:
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
            share if claim.share is None else claim.share,
            self._divisible,
            given,
            backed,
            claim.since,
            claim.subject.container_id or container_id,
            replicas,
        )

    def _gather(self, name: str) -> "_Facts":
        mine = self._said[name]
        if name and len(self._said) - ("" in self._said) == 1:
            # A part of the pod's is this container's if no other container has any of it.
            mine = mine + self._said.get("", [])
        shares = [(w.evidence, w.claim.share) for w, _ in mine if w.claim.share is not None]
        given = any(f.whole and w.evidence == Evidence.KUBELET_IDS for w, f in mine)
        ids = [w.claim.subject.container_id for w, _ in mine if w.claim.subject.container_id]
        replicas = {f.replica for _, f in mine if f.replica}
        return _Facts(
            min(shares)[1] if shares else None,
            given,
            min(ids, default=""),
            tuple(sorted(replicas, key=lambda number: (len(number), number))),
        )
