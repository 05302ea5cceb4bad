"""Who holds one device, of all who stand by a claim on it."""

from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from operator import attrgetter
from typing import NamedTuple

from pipeline.join.claim_resolution import PodKey, Word
from pipeline.model import Evidence, Instant, PartialRef, Pod, PodInfo

# The order of `PartialRef` itself, which compares many times as slowly.
_by_subject = attrgetter(
    *(f"subject.{part}" for part in ("namespace", "pod", "container", "uid", "container_id"))
)


class Stake(NamedTuple):
    """A container that claims a device.

    Attributes:
        subject: the container, without its id.
        pod: its pod, where a source told of it.
        evidence: what the claim rests on.
        source: who said it.
        share: part of the device, if known.
        divisible: the claim is on a part of the device or on a replica: others fit beside it.
        given: the kubelet gave the container the device under its own id, which it gives to one pod
            only.
        rank: between pods on the device; the lowest stands.
        since: when the holding began, if the source knows.
        container_id: the runtime's, if known.
        replicas: the numbers of the device plugin's replicas that it has.
    """

    subject: PartialRef
    pod: Pod | None
    evidence: Evidence
    source: str
    share: float | None
    divisible: bool
    given: bool
    rank: int
    since: Instant | None
    container_id: str
    replicas: tuple[str, ...] = ()

    @property
    def pod_key(self) -> PodKey:
        """Which pod it is."""
        return (self.subject.namespace, self.subject.pod, self.subject.uid)

    @property
    def exclusive(self) -> bool:
        """Whether the device can be nobody else's."""
        return not self.divisible and (self.share == 1 or self.given)


class Holding(NamedTuple):
    """A container on a device, before the join knows since when."""

    subject: PartialRef
    share: float | None
    since: Instant | None
    source: str
    evidence: Evidence
    pod: PodInfo | None
    replicas: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """What the claims on a device come to.

    Attributes:
        holdings: sorted by subject.
        contradicting: pods whose claims contradict another's, sorted.
    """

    holdings: tuple[Holding, ...]
    contradicting: tuple[PodKey, ...] = ()

    @property
    def conflicts(self) -> int:
        """How many pods' claims contradict another's."""
        return len(self.contradicting)


def weigh(stakes: Iterable[Stake], denied: Iterable[Word] = ()) -> Verdict:
    """Decide who holds a device.

    Args:
        stakes: in the order of the sources; of several for one container the first source's is
            shown, with the best rank of all.
        denied: claims without effect; they contradict a pod that has the device alone.
    """
    once: dict[PartialRef, Stake] = {}
    for stake in stakes:
        before = once.setdefault(stake.subject, stake)
        if before is stake:
            continue
        # Said twice by one source: what comes first in its list has no say.
        shown = min(before, stake, key=_said) if before.source == stake.source else before
        once[stake.subject] = shown._replace(rank=min(before.rank, stake.rank))
    standing = _without_ended(list(once.values()))
    conflicts: set[PodKey] = set()
    if len({stake.pod_key for stake in standing}) > 1:
        standing, conflicts = _settle(standing)
    standing.sort(key=_by_subject)
    shares = [_share(stake, alone=len(standing) == 1) for stake in standing]
    parts = fsum(share for share in shares if share is not None)
    if parts >= 1:
        pods = {stake.pod_key for stake in standing}
        told = {s.pod_key for s, share in zip(standing, shares, strict=True) if share is not None}
        if parts > 1 or pods != told:
            # More than there is, or nothing left for a pod that holds some of it all the same.
            conflicts |= pods
    if parts > 1:
        # Then nobody's part can be believed.
        shares = [None] * len(standing)
    if any(not stake.divisible for stake in standing):
        conflicts |= {_pod_of(word) for word in denied} - {stake.pod_key for stake in standing}
    return Verdict(
        tuple([_held(stake, share) for stake, share in zip(standing, shares, strict=True)]),
        tuple(sorted(conflicts)),
    )


def _pod_of(word: Word) -> PodKey:
    return (word.subject.namespace, word.subject.pod, word.subject.uid)


def _settle(stakes: list[Stake]) -> tuple[list[Stake], set[PodKey]]:
    """Choose among several pods; return those that stand, and which pods contradict."""
    parts = [stake for stake in stakes if stake.divisible]
    if len(parts) == len(stakes):
        return stakes, set()
    pods = {stake.pod_key for stake in stakes}
    # What the kubelet gave a pod is that pod's, whatever else its containers show.
    ranks: dict[PodKey, int] = {}
    for stake in stakes:
        ranks[stake.pod_key] = min(stake.rank, ranks.get(stake.pod_key, stake.rank))
    strongest = min(ranks.values())
    standing = [stake for stake in stakes if ranks[stake.pod_key] == strongest]
    if any(stake.exclusive for stake in standing) and len({s.pod_key for s in standing}) > 1:
        latest = _latest(standing)
        if latest is None:
            return standing, pods
        standing = [stake for stake in standing if stake.pod_key == latest]
    if all(stake.divisible for stake in standing):
        standing = parts
    return standing, pods - {stake.pod_key for stake in standing}


def _latest(stakes: list[Stake]) -> PodKey | None:
    """Return the pod that started last; None unless all starts are known and one is the last."""
    starts: dict[PodKey, int] = {}
    for stake in stakes:
        start = _start(stake)
        if start is None:
            return None
        starts[stake.pod_key] = max(start, starts.get(stake.pod_key, start))
    last = max(starts.values())
    latest = [key for key, start in starts.items() if start == last]
    return latest[0] if len(latest) == 1 else None


def _start(stake: Stake) -> int | None:
    """Return when its pod, else the container, started, by the wall clock in nanoseconds.

    The kubelet gives devices to a pod when it takes it on; a container may start many times since.
    """
    container, pod = stake.subject.container, stake.pod
    times = [stake.since]
    if pod is not None:
        times = [pod.started, *(c.started for c in pod.containers if c.name == container)]
    return next((time.wall_ns for time in times if time is not None), None)


def _without_ended(stakes: list[Stake]) -> list[Stake]:
    """Leave out containers that have ended where another of their pod goes on with the device."""
    live = {stake.pod_key for stake in stakes if not _ended(stake)}
    return [stake for stake in stakes if stake.pod_key not in live or not _ended(stake)]


def _ended(stake: Stake) -> bool:
    if stake.pod is None:
        return False
    return any(c.name == stake.subject.container and c.ended for c in stake.pod.containers)


def _said(stake: Stake) -> tuple[object, ...]:
    since = -1 if stake.since is None else stake.since.mono_ns
    return (stake.share is None, stake.share, since, stake.container_id)


def _share(stake: Stake, *, alone: bool) -> float | None:
    if stake.share is None and alone and stake.exclusive:
        return 1.0
    return stake.share


def _held(stake: Stake, share: float | None) -> Holding:
    pod = stake.pod
    since = stake.since
    if since is None and pod is not None:
        since = pod.started
    subject = stake.subject
    if stake.container_id:
        subject = replace(subject, container_id=stake.container_id)
    info = pod.info if pod is not None else None
    return Holding(subject, share, since, stake.source, stake.evidence, info, stake.replicas)
