"""Arbitration: decides which of the candidates for a device hold it."""

from collections.abc import Iterable
from dataclasses import replace
from math import fsum
from operator import attrgetter
from typing import NamedTuple

from pipeline.join.claim_resolution import PodKey, ResolvedClaim
from pipeline.model import ClaimedDevice, Holder, Instant, PartialRef

# Sorts as `PartialRef` itself does, but much faster.
_by_subject = attrgetter(
    *(f"claim.subject.{part}" for part in ("namespace", "pod", "container", "uid", "container_id"))
)


class Candidate(NamedTuple):
    """A container with a valid claim on a device.

    Attributes:
        claim: the claim.
        share: the part of the device that it holds; None if unknown.
        divisible: whether the claim is on a part of the device or on a replica, so that other pods
            may hold the device as well.
        allocated_whole: whether the kubelet allocated the device to the container under the id of
            the whole device, which it gives to only one pod.
        rank: rank among the pods on the device; the pods with the lowest rank hold it.
        container_id: the runtime's id; empty if unknown.
        replicas: numbers of the device plugin's replicas that the container has.
        claimed: the ResourceClaim that was allocated the device for the container; None if unknown.
    """

    claim: ResolvedClaim
    share: float | None
    divisible: bool
    allocated_whole: bool
    rank: int
    container_id: str
    replicas: tuple[str, ...]
    claimed: ClaimedDevice | None = None

    @property
    def exclusive(self) -> bool:
        """Whether no other pod can hold the device at the same time."""
        return not self.divisible and (self.share == 1 or self.allocated_whole)


class ArbitrationResult(NamedTuple):
    """The holders of a device, and the conflicts.

    Attributes:
        holders: the candidates that hold the device, with the shares that are shown; sorted by
            subject.
        conflicting_pods: pods whose claims contradict the claim of another pod, sorted.
    """

    holders: tuple[Candidate, ...]
    conflicting_pods: tuple[PodKey, ...] = ()


def arbitrate(
    candidates: Iterable[Candidate], ineffective: Iterable[ResolvedClaim] = ()
) -> ArbitrationResult:
    """Decide which containers hold a device.

    Args:
        candidates: the candidates, in the order of the sources. If there are several for one
            container, the candidate of the first source is shown, with the best rank of all.
        ineffective: claims on the device without effect. If a holder has more than a part of the
            device, the pods of these claims are in conflict with it.
    """
    by_container: dict[PartialRef, Candidate] = {}
    for candidate in candidates:
        before = by_container.setdefault(candidate.claim.subject, candidate)
        if before is candidate:
            continue
        best = before
        if before.claim.source == candidate.claim.source:
            # The result must not depend on the order of claims in the list of one source.
            best = min(before, candidate, key=_specificity)
        by_container[candidate.claim.subject] = best._replace(rank=min(before.rank, candidate.rank))
    remaining = _without_ended(list(by_container.values()))
    conflicts: set[PodKey] = set()
    if len({candidate.claim.pod_key for candidate in remaining}) > 1:
        remaining, conflicts = _select_pods(remaining)
    remaining.sort(key=_by_subject)
    shown = remaining
    if len(remaining) == 1 and remaining[0].share is None and remaining[0].exclusive:
        shown = [remaining[0]._replace(share=1.0)]
    total = fsum(one.share for one in shown if one.share is not None)
    pods = {one.claim.pod_key for one in shown}
    if total > 1 or (
        total == 1 and pods != {s.claim.pod_key for s in shown if s.share is not None}
    ):
        # The shares exceed the device, or leave nothing for a pod with an unknown share.
        conflicts |= pods
    if total > 1:
        # At least one share is wrong, and it is unknown which: show none.
        shown = [one._replace(share=None) for one in shown]
    if any(not one.divisible for one in shown):
        conflicts |= {claim.pod_key for claim in ineffective} - pods
    return ArbitrationResult(tuple(shown), tuple(sorted(conflicts)))


def make_holder(candidate: Candidate, at: Instant, previous: Holder | None) -> Holder:
    """Return a holder.

    A start of the holding that a source reported once stays known when the source no longer
    reports it, also if the container restarts.

    Args:
        candidate: a candidate that holds the device.
        at: the present time.
        previous: this holder as it was before; None if the container did not hold the device.
    """
    subject, pod, since = candidate.claim.subject, candidate.claim.pod, candidate.claim.claim.since
    if candidate.container_id:
        subject = replace(subject, container_id=candidate.container_id)
    if since is None and pod is not None:
        since = pod.started
    observed = since is None and (previous is None or previous.since_observed)
    return Holder(
        subject,
        candidate.share,
        since or (at if previous is None else previous.since),
        candidate.claim.source,
        candidate.claim.evidence,
        None if pod is None else pod.info,
        candidate.replicas,
        observed,
        candidate.claimed,
    )


def _select_pods(candidates: list[Candidate]) -> tuple[list[Candidate], set[PodKey]]:
    """Return the candidates of several pods that hold a device, and the overruled pods.

    If it cannot be decided which pod holds it, all candidates and all pods are returned.
    """
    divisible = [candidate for candidate in candidates if candidate.divisible]
    if len(divisible) == len(candidates):
        return candidates, set()
    pods = {candidate.claim.pod_key for candidate in candidates}
    # The best evidence for any container of a pod decides for the whole pod.
    rank = min(candidate.rank for candidate in candidates)
    strongest = {candidate.claim.pod_key for candidate in candidates if candidate.rank == rank}
    remaining = [candidate for candidate in candidates if candidate.claim.pod_key in strongest]
    if any(candidate.exclusive for candidate in remaining) and len(strongest) > 1:
        latest = _latest_started_pod(remaining)
        if latest is None:
            return remaining, pods
        remaining = [candidate for candidate in remaining if candidate.claim.pod_key == latest]
    if all(candidate.divisible for candidate in remaining):
        remaining = divisible
    return remaining, pods - {candidate.claim.pod_key for candidate in remaining}


def _latest_started_pod(candidates: list[Candidate]) -> PodKey | None:
    """Return the pod that started last; None if a start is unknown or two pods started last."""
    starts = [_started_ns(candidate) for candidate in candidates]
    last = max((start for start in starts if start is not None), default=None)
    latest = {c.claim.pod_key for c, start in zip(candidates, starts, strict=True) if start == last}
    return latest.pop() if None not in starts and len(latest) == 1 else None


def _started_ns(candidate: Candidate) -> int | None:
    """Return when the pod, else the container, started, by the wall clock in nanoseconds.

    The start of the pod comes first, because the kubelet allocates devices when it admits a pod;
    containers may start several times after that.
    """
    container, pod = candidate.claim.subject.container, candidate.claim.pod
    times = [candidate.claim.claim.since]
    if pod is not None:
        times = [pod.started, *(c.started for c in pod.containers if c.name == container)]
    return next((time.wall_ns for time in times if time is not None), None)


def _without_ended(candidates: list[Candidate]) -> list[Candidate]:
    """Drop ended containers where another container of the same pod still has the device."""
    live = {candidate.claim.pod_key for candidate in candidates if not _ended(candidate)}
    return [one for one in candidates if one.claim.pod_key not in live or not _ended(one)]


def _ended(candidate: Candidate) -> bool:
    containers = candidate.claim.pod.containers if candidate.claim.pod is not None else ()
    return any(one.name == candidate.claim.subject.container and one.ended for one in containers)


def _specificity(candidate: Candidate) -> tuple[object, ...]:
    since = -1 if candidate.claim.claim.since is None else candidate.claim.claim.since.mono_ns
    return (candidate.share is None, candidate.share, since, candidate.container_id)
