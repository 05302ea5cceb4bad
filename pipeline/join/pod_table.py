"""Pods by source, and the pod that a source's claim means."""

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from pipeline.join.source_pods import PodIdentifier, SourcePods, identifier_of, identifiers_of
from pipeline.model import Claim, Evidence, Instant, PartialRef, Pod, PodsReplaced


class IdentifiedContainer(NamedTuple):
    """A container that a claim means.

    Attributes:
        subject: the container, with every part that is known except the container's id.
        pod: its pod; None if no source reported it.
    """

    subject: PartialRef
    pod: Pod | None


class PodChange(NamedTuple):
    """Result of a report about a pod.

    Attributes:
        affects_claims: whether the holders of devices may have changed.
        changed_pod: the pod, if it was admitted or has ended, or if one of its containers was
            created, started or ended; also a static pod whose mirror pod was deleted. Else None.
    """

    affects_claims: bool
    changed_pod: Pod | None = None


_NO_CHANGE: Final = PodChange(affects_claims=False)
_NO_PODS: Final = SourcePods()


class PodTable:
    """Pods by source. Of two sources that report a pod the earlier in the configuration counts.

    Deleted pods are remembered for a while, because other sources lag behind.
    """

    def __init__(self) -> None:
        self._by_source: dict[str, SourcePods] = {}
        self._by_rank: list[SourcePods] = []
        self._down_sources: list[SourcePods] = []
        self._pods_listed = False
        self._referenced: set[PodIdentifier] = set()
        self._subjects: dict[str, tuple[Pod, dict[str, PartialRef]]] = {}

    def replace(self, source: str, event: PodsReplaced, at: Instant) -> PodChange:
        """Replace all pods of a source. Pods that are missing are remembered as deleted."""
        source_pods = self._by_source.setdefault(source, SourcePods())
        source_pods.good_for_ns = event.good_for_ns
        new_pods = {pod.info.uid: pod for pod in event.pods}
        if source_pods.listed and source_pods.pods == new_pods:
            return _NO_CHANGE
        source_pods.mark_listed(at)
        source_pods.prune(at.mono_ns, self._referenced)
        for uid in [uid for uid in source_pods.pods if uid not in new_pods]:
            source_pods.delete(uid, at)
        self._subjects.clear()
        for pod in new_pods.values():
            source_pods.upsert(pod, at)
        return PodChange(affects_claims=True)

    def upsert(self, source: str, pod: Pod, at: Instant) -> PodChange:
        """Add or change a pod of a source; ignored if the source has no valid list of pods."""
        source_pods = self._by_source.get(source, _NO_PODS)
        if not source_pods.listed:
            return _NO_CHANGE
        before = source_pods.pods.get(pod.info.uid)
        if before == pod:
            return _NO_CHANGE
        source_pods.upsert(pod, at)
        lifecycle_changed = before is None or _lifecycle(before) != _lifecycle(pod)
        affects_claims = self._affects_claims(pod) or (
            before is not None and self._affects_claims(before)
        )
        return PodChange(affects_claims, pod if lifecycle_changed else None)

    def delete(self, source: str, uid: str, at: Instant) -> PodChange:
        """Delete a pod of a source, and remember that it is gone."""
        source_pods = self._by_source.get(source, _NO_PODS)
        pod = source_pods.pods.get(uid)
        if pod is None:
            return _NO_CHANGE
        node_pod = source_pods.with_node_uid(uid) or pod
        source_pods.delete(uid, at)
        source_pods.prune(at.mono_ns, self._referenced)
        self._subjects.pop(node_pod.info.uid, None)
        # A static pod may run on without its mirror pod: only the kubelet knows.
        return PodChange(self._affects_claims(pod), pod if pod.static_uid else None)

    def remove(self, source: str) -> None:
        """Remove all pods of a source."""
        self._by_source.pop(source, None)
        self._subjects.clear()

    def expire(self, source: str, silent_ns: int, at: Instant) -> bool:
        """Remove the pods of a source if it was silent for too long; return whether it was."""
        source_pods = self._by_source.get(source, _NO_PODS)
        if not source_pods.listed or silent_ns <= source_pods.good_for_ns:
            return False
        source_pods.expire(at)
        self._subjects.clear()
        return True

    def claims(self, source: str) -> Iterator[Claim]:
        """Yield the claims in the annotations of a source's pods."""
        for pod in self._by_source.get(source, _NO_PODS).pods.values():
            yield from pod.claims

    def find(self, name: PodIdentifier) -> Pod | None:
        """Return the pod with a name or uid, from the highest-ranked source with it; else None."""
        found = (source_pods.find(name) for source_pods in self._by_rank)
        return next((pod for pod in found if pod is not None), None)

    def referred_to(self, pod_name: tuple[str, str], uid: str, moment: Instant) -> bool | None:
        """Whether a name meant a pod at a moment; None where no source reports the pod."""
        for source_pods in self._by_source.values():
            pod = source_pods.find(uid)
            if pod is not None:
                return source_pods.find(pod_name) is pod and source_pods.may_refer_to(pod, moment)
        return None

    def with_node_uid(self, source: str, pod: Pod) -> Pod:
        """Return a reported pod under the uid by which the node knows it."""
        return self._by_source.get(source, _NO_PODS).with_node_uid(pod.info.uid) or pod

    def is_alive(self, uid: str) -> bool | None:
        """Whether a pod exists and has not ended; None where no source lists pods now."""
        if not any(source_pods.listed for source_pods in self._by_source.values()):
            return None
        found = (source_pods.find(uid) for source_pods in self._by_source.values())
        return any(pod is not None and not pod.ended for pod in found)

    def begin_resolution(self, ranking: Iterable[str], up: Container[str]) -> None:
        """Start a resolution of all claims.

        Args:
            ranking: the sources in their order.
            up: the sources that are up.
        """
        self._by_rank = [self._by_source[source] for source in ranking if source in self._by_source]
        self._down_sources = [
            source_pods for s, source_pods in self._by_source.items() if s not in up
        ]
        self._pods_listed = any(
            source_pods.listed and source_pods not in self._down_sources
            for source_pods in self._by_rank
        )
        self._referenced.clear()

    def end_resolution(self, at: Instant) -> None:
        """End the resolution: forget pods deleted long ago that no claim refers to."""
        for source_pods in self._by_rank:
            source_pods.prune(at.mono_ns, self._referenced)

    def identify(
        self, ref: PartialRef, confirmed_at: Instant, evidence: Evidence
    ) -> IdentifiedContainer | None:
        """Return the container that a claim means; None if its pod has ended or is gone.

        Args:
            ref: the container, as the source knows it.
            confirmed_at: when the source last confirmed its claims.
            evidence: what the claim is based on. Reports of the container runtime about its
                containers are valid whatever the API server reports about the pod.
        """
        name = identifier_of(ref)
        self._referenced.add(name)
        from_runtime = evidence <= Evidence.RUNTIME_ENV
        found = [
            (source_pods, pod)
            for source_pods in self._by_rank
            if (pod := source_pods.find(name)) is not None
        ]
        if not from_runtime and any(pod.ended for _, pod in found):
            return None
        if found:
            source_pods, pod = found[0]
            if from_runtime or self._was_admitted(source_pods, pod, ref, confirmed_at, evidence):
                return IdentifiedContainer(self._complete(ref, pod), pod)
            return None
        # The checkpoint keeps pods that are gone until the kubelet writes it again.
        is_unlisted = self._pods_listed and not ref.pod
        if not from_runtime and (
            is_unlisted or any(source_pods.is_deleted(name) for source_pods in self._by_rank)
        ):
            return None
        if ref.container_id:
            ref = PartialRef(ref.namespace, ref.pod, ref.container, ref.uid)
        return IdentifiedContainer(ref, None)

    def _was_admitted(
        self,
        source_pods: SourcePods,
        pod: Pod,
        ref: PartialRef,
        confirmed_at: Instant,
        evidence: Evidence,
    ) -> bool:
        """Whether the kubelet had admitted the pod of a claim, so that it can hold devices."""
        if evidence == Evidence.SCHEDULER_ANNOTATION:
            return pod.started is not None
        if ref.uid:
            return True
        # An entry in a pod list file does not show that the kubelet has admitted the pod.
        unstarted = pod.started is None and evidence == Evidence.POD_LIST_FILE
        if not unstarted and source_pods.was_admitted(pod, confirmed_at):
            return True
        # A source that is down cannot report the start: accept a name that had no other pod.
        return (
            pod.started is None
            and source_pods in self._down_sources
            and not source_pods.is_deleted(identifier_of(ref))
        )

    def _affects_claims(self, pod: Pod) -> bool:
        """Whether a pod has claims, or a claim refers to the pod."""
        return bool(pod.claims) or not self._referenced.isdisjoint(identifiers_of(pod))

    def _complete(self, ref: PartialRef, pod: Pod) -> PartialRef:
        """Return the complete reference to a container; the same object until the pod changes."""
        info = pod.info
        known, subjects = self._subjects.get(info.uid, (None, {}))
        if known is not pod:
            subjects = {}
            self._subjects[info.uid] = (pod, subjects)
        subject = subjects.get(ref.container)
        if subject is None:
            # With several containers it is unknown which one is meant.
            container = ref.container or pod.main_container
            subject = PartialRef(info.namespace, info.name, container, info.uid)
            subjects[ref.container] = subject
        return subject


def _lifecycle(pod: Pod) -> tuple[object, ...]:
    """Return the states of a pod and its containers that a change of holders can depend on."""
    containers = [(c.name, c.container_id, c.ended) for c in pod.containers]
    return pod.ended, pod.started is None, containers
