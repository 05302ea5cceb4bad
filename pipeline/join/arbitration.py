"""Arbitration: decides which of the candidates for a device hold it."""

from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from operator import attrgetter
from typing import NamedTuple

from pipeline.join.claim_resolution import PodKey, ResolvedClaim
from pipeline.model import Evidence, Holder, Instant, PartialRef, Pod

# Sorts as `PartialRef` itself does, but much faster.
_by_subject = attrgetter(
    *(f"subject.{part}" for part in ("namespace", "pod", "container", "uid", "container_id"))
)


class Candidate(NamedTuple):
    """A container with a valid claim on a device.

    Attributes:
        subject: the container, without its id.
        pod: its pod, where a source reported it.
        evidence: what the claim is based on.
        source: the source of the claim.
        share: the part of the device, if known.
        divisible: the claim is on a part of the device or on a replica, so that other pods may hold
            the device as well.
        allocated_whole: the kubelet allocated the device to the container under the id of the
            whole device, which it gives to only one pod.
        rank: among pods on the device; the lowest rank holds it.
        since: when the holding began, if the source knows it.
        container_id: the runtime's id, if known.
        replicas: numbers of the device plugin's replicas that it has.
    """

    subject: PartialRef
    pod: Pod | None
    evidence: Evidence
    source: str
    share: float | None
    divisible: bool
    allocated_whole: bool
    rank: int
    since: Instant | None
    container_id: str
    replicas: tuple[str, ...]

    @property
    def pod_key(self) -> PodKey:
        """Namespace, name and uid of the pod."""
        return (self.subject.namespace, self.subject.pod, self.subject.uid)

    @property
    def exclusive(self) -> bool:
        """Whether no other pod can hold the device at the same time."""
        return not self.divisible and (self.share == 1 or self.allocated_whole)


class ArbitrationResult(NamedTuple):
    """The holders of a device, and the conflicts.

    Attributes:
        holders: the candidates that hold it, with the shares that are shown; sorted by subject.
        conflicting_pods: pods whose claims contradict the claim of another pod, sorted.
    """

    holders: tuple[Candidate, ...]
    conflicting_pods: tuple[PodKey, ...] = ()

    @property
    def conflicts(self) -> int:
        """Number of pods whose claims contradict the claim of another pod."""
        return len(self.conflicting_pods)


def arbitrate(
    candidates: Iterable[Candidate], ineffective: Iterable[ResolvedClaim] = ()
) -> ArbitrationResult:
    """Decide which containers hold a device.

    Args:
        candidates: in the order of the sources. If there are several for one container, the one of
            the first source is shown, with the best rank of all.
        ineffective: claims without effect; they are a conflict if a pod holds the whole device.
    """
    by_container: dict[PartialRef, Candidate] = {}
    for candidate in candidates:
        before = by_container.setdefault(candidate.subject, candidate)
        if before is candidate:
            continue
        # Two claims of one source: the result must not depend on their order in its list.
        shown = (
            min(before, candidate, key=_specificity)
            if before.source == candidate.source
            else before
        )
        by_container[candidate.subject] = shown._replace(rank=min(before.rank, candidate.rank))
    remaining = _without_ended(list(by_container.values()))
    conflicts: set[PodKey] = set()
    if len({candidate.pod_key for candidate in remaining}) > 1:
        remaining, conflicts = _select_pods(remaining)
    remaining.sort(key=_by_subject)
    shares = [_share(candidate, alone=len(remaining) == 1) for candidate in remaining]
    total = fsum(share for share in shares if share is not None)
    if total >= 1:
        pods = {candidate.pod_key for candidate in remaining}
        pods_with_share = {
            s.pod_key for s, share in zip(remaining, shares, strict=True) if share is not None
        }
        if total > 1 or pods != pods_with_share:
            # The shares exceed the device, or leave nothing for a pod with an unknown share.
            conflicts |= pods
    if total > 1:
        # At least one share is wrong, and it is unknown which: show none.
        shares = [None] * len(remaining)
    if any(not candidate.divisible for candidate in remaining):
        conflicts |= {claim.pod_key for claim in ineffective} - {
            candidate.pod_key for candidate in remaining
        }
    return ArbitrationResult(
        tuple(
            [
                candidate._replace(share=share)
                for candidate, share in zip(remaining, shares, strict=True)
            ]
        ),
        tuple(sorted(conflicts)),
    )


def make_holder(candidate: Candidate, at: Instant, previous: Holder | None) -> Holder:
    """Return a holder.

    A start that a source reported once stays known when the source no longer reports it, also if
    the container restarts.

    Args:
        candidate: a candidate that holds the device.
        at: the present time.
        previous: this holder as it was before; None if the container did not hold the device.
    """
    subject, pod, since = candidate.subject, candidate.pod, candidate.since
    if candidate.container_id:
        subject = replace(subject, container_id=candidate.container_id)
    if since is None and pod is not None:
        since = pod.started
    observed = since is None and (previous is None or previous.since_observed)
    return Holder(
        subject,
        candidate.share,
        since or (at if previous is None else previous.since),
        candidate.source,
        candidate.evidence,
        None if pod is None else pod.info,
        candidate.replicas,
        observed,
    )


def _select_pods(candidates: list[Candidate]) -> tuple[list[Candidate], set[PodKey]]:
    """Select the candidates of several pods that hold a device; return them and the conflicts."""
    divisible = [candidate for candidate in candidates if candidate.divisible]
    if len(divisible) == len(candidates):
        return candidates, set()
    pods = {candidate.pod_key for candidate in candidates}
    # The best evidence for any container of a pod decides for the whole pod.
    ranks: dict[PodKey, int] = {}
    for candidate in candidates:
        ranks[candidate.pod_key] = min(candidate.rank, ranks.get(candidate.pod_key, candidate.rank))
    strongest = min(ranks.values())
    remaining = [candidate for candidate in candidates if ranks[candidate.pod_key] == strongest]
    if (
        any(candidate.exclusive for candidate in remaining)
        and len({s.pod_key for s in remaining}) > 1
    ):
        latest = _latest_started_pod(remaining)
        if latest is None:
            return remaining, pods
        remaining = [candidate for candidate in remaining if candidate.pod_key == latest]
    if all(candidate.divisible for candidate in remaining):
        remaining = divisible
    return remaining, pods - {candidate.pod_key for candidate in remaining}


def _latest_started_pod(candidates: list[Candidate]) -> PodKey | None:
    """Return the pod that started last; None if a start is unknown or two pods started last."""
    starts: dict[PodKey, int] = {}
    for candidate in candidates:
        start = _started_ns(candidate)
        if start is None:
            return None
        starts[candidate.pod_key] = max(start, starts.get(candidate.pod_key, start))
    last = max(starts.values())
    latest = [key for key, start in starts.items() if start == last]
    return latest[0] if len(latest) == 1 else None


def _started_ns(candidate: Candidate) -> int | None:
    """Return when the pod, else the container, started, by the wall clock in nanoseconds.

    The start of the pod comes first, because the kubelet allocates devices when it admits a pod;
    containers may start several times after that.
    """
    container, pod = candidate.subject.container, candidate.pod
    times = [candidate.since]
    if pod is not None:
        times = [pod.started, *(c.started for c in pod.containers if c.name == container)]
    return next((time.wall_ns for time in times if time is not None), None)


def _without_ended(candidates: list[Candidate]) -> list[Candidate]:
    """Drop ended containers where another container of the same pod still has the device."""
    live = {candidate.pod_key for candidate in candidates if not _ended(candidate)}
    return [
        candidate
        for candidate in candidates
        if candidate.pod_key not in live or not _ended(candidate)
    ]


def _ended(candidate: Candidate) -> bool:
    if candidate.pod is None:
        return False
    return any(c.name == candidate.subject.container and c.ended for c in candidate.pod.containers)


def _specificity(candidate: Candidate) -> tuple[object, ...]:
    since = -1 if candidate.since is None else candidate.since.mono_ns
    return (candidate.share is None, candidate.share, since, candidate.container_id)


def _share(candidate: Candidate, *, alone: bool) -> float | None:
    if candidate.share is None and alone and candidate.exclusive:
        return 1.0
    return candidate.share
