"""The pods that sources tell of, and which pod a source means."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from pipeline.join.source_pods import PodIdentifier, SourcePods, identifier_of, identifiers_of
from pipeline.model import Claim, Evidence, Instant, PartialRef, Pod, PodsReplaced


class IdentifiedContainer(NamedTuple):
    """What is known of the container that a source names.

    Attributes:
        subject: with every part that could be found out, but for the container's id.
        pod: None when no source told of it.
    """

    subject: PartialRef
    pod: Pod | None


class PodChange(NamedTuple):
    """What a source's word on a pod did.

    Attributes:
        affects_claims: who holds what may have changed.
        changed_pod: the pod, if it was taken on, or a container of it started, ended or was made
            anew.
    """

    affects_claims: bool
    changed_pod: Pod | None = None


_NO_CHANGE = PodChange(affects_claims=False)


class PodTable:
    """Pods by source. Of two sources that tell of one pod the earlier in the configuration counts.

    What is gone is kept in mind for a while: other sources lag behind.
    """

    def __init__(self) -> None:
        self._by_source: dict[str, SourcePods] = {}
        self._by_rank: list[SourcePods] = []
        self._down_sources: list[SourcePods] = []
        self._pods_listed = False
        self._referenced: set[PodIdentifier] = set()
        self._subjects: dict[str, tuple[Pod, dict[str, PartialRef]]] = {}

    def replace(self, source: str, event: PodsReplaced, at: Instant) -> PodChange:
        """Take in all pods of a source."""
        told = self._by_source.setdefault(source, SourcePods())
        told.good_for_ns = event.good_for_ns
        coming = {pod.info.uid: pod for pod in event.pods}
        if told.listed and told.pods == coming:
            return _NO_CHANGE
        told.mark_listed(at)
        told.prune(at.mono_ns, self._referenced)
        for uid in [uid for uid in told.pods if uid not in coming]:
            told.delete(uid, at)
        self._subjects.clear()
        for pod in coming.values():
            told.upsert(pod, at)
        return PodChange(affects_claims=True)

    def upsert(self, source: str, pod: Pod, at: Instant) -> PodChange:
        """Take in a pod."""
        told = self._by_source.get(source)
        if told is None or not told.listed:
            return _NO_CHANGE
        before = told.pods.get(pod.info.uid)
        if before == pod:
            return _NO_CHANGE
        told.upsert(pod, at)
        moved = before is None or _lifecycle(before) != _lifecycle(pod)
        matters = self._affects_claims(pod) or (before is not None and self._affects_claims(before))
        return PodChange(matters, pod if moved else None)

    def delete(self, source: str, uid: str, at: Instant) -> PodChange:
        """Take out a pod."""
        told = self._by_source.get(source)
        pod = None if told is None else told.pods.get(uid)
        if told is None or pod is None:
            return _NO_CHANGE
        shown = told.with_node_uid(uid) or pod
        told.delete(uid, at)
        told.prune(at.mono_ns, self._referenced)
        self._subjects.pop(shown.info.uid, None)
        # A static pod may go on without its mirror: that is for the kubelet to say.
        return PodChange(self._affects_claims(pod), pod if pod.static_uid else None)

    def remove(self, source: str) -> None:
        """Forget a source's pods."""
        self._by_source.pop(source, None)
        self._subjects.clear()

    def expire(self, source: str, silent_ns: int, at: Instant) -> bool:
        """Let go of a source's pods if it has been silent for too long; return whether it has."""
        told = self._by_source.get(source)
        if told is None or not told.listed or silent_ns <= told.good_for_ns:
            return False
        told.expire(at)
        self._subjects.clear()
        return True

    def claims(self, source: str) -> Iterator[Claim]:
        """Yield what a source's pods say that they hold."""
        told = self._by_source.get(source)
        if told is not None:
            for pod in told.pods.values():
                yield from pod.claims

    def find(self, name: PodIdentifier) -> Pod | None:
        """Return the pod that goes by a name, by the word of the first source that knows it."""
        found = (told.find(name) for told in self._by_rank)
        return next((pod for pod in found if pod is not None), None)

    def referred_to(self, pod_name: tuple[str, str], uid: str, moment: Instant) -> bool | None:
        """Whether a name meant a pod at a moment; None where no source tells of the pod."""
        for told in self._by_source.values():
            pod = told.find(uid)
            if pod is not None:
                return told.find(pod_name) is pod and told.may_refer_to(pod, moment)
        return None

    def with_node_uid(self, source: str, pod: Pod) -> Pod:
        """Return a pod that a source has told of as it is shown: under the uid of the node."""
        told = self._by_source.get(source)
        return (told.with_node_uid(pod.info.uid) if told is not None else None) or pod

    def is_alive(self, uid: str) -> bool | None:
        """Whether a pod is there and has not ended; None where no source lists pods now."""
        if not any(told.listed for told in self._by_source.values()):
            return None
        found = (told.find(uid) for told in self._by_source.values())
        return any(pod is not None and not pod.ended for pod in found)

    def begin_resolution(self, ranking: Iterable[str], up: Container[str]) -> None:
        """Begin to work out what all claims mean.

        Args:
            ranking: the sources in their order.
            up: those that do their work.
        """
        self._by_rank = [self._by_source[source] for source in ranking if source in self._by_source]
        self._down_sources = [told for s, told in self._by_source.items() if s not in up]
        self._pods_listed = any(
            told.listed and told not in self._down_sources for told in self._by_rank
        )
        self._referenced.clear()

    def end_resolution(self, at: Instant) -> None:
        """Note that no claim is left to be identified."""
        for told in self._by_rank:
            told.prune(at.mono_ns, self._referenced)

    def identify(
        self, ref: PartialRef, confirmed_at: Instant, evidence: Evidence
    ) -> IdentifiedContainer | None:
        """Return which container a source means; None if its word is no longer about any.

        Args:
            ref: the container, as the source knows it.
            confirmed_at: when the source stood by its word.
            evidence: what the word rests on. What the runtime itself says of a container is true
                whatever the API server thinks of its pod.
        """
        name = identifier_of(ref)
        self._referenced.add(name)
        certain = evidence <= Evidence.RUNTIME_ENV
        found = [(told, pod) for told in self._by_rank if (pod := told.find(name)) is not None]
        if not certain and any(pod.ended for _, pod in found):
            return None
        if found:
            told, pod = found[0]
            if certain or self._was_admitted(told, pod, ref, confirmed_at, evidence):
                return IdentifiedContainer(self._complete(ref, pod), pod)
            return None
        # The checkpoint keeps pods that are gone, until it is written anew.
        unheard_of = self._pods_listed and not ref.pod
        if not certain and (unheard_of or any(told.is_deleted(name) for told in self._by_rank)):
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
        """Whether the kubelet had taken on the pod that is meant, so that it can hold something."""
        if evidence == Evidence.SCHEDULER_ANNOTATION:
            return pod.started is not None
        if ref.uid:
            return True
        # Only the kubelet's own word tells that the kubelet knows a pod.
        unstarted = pod.started is None and evidence == Evidence.POD_LIST_FILE
        if not unstarted and source_pods.was_admitted(pod, confirmed_at):
            return True
        # A start that can't be heard of is no reason to doubt a name that had no other owner.
        return (
            pod.started is None
            and source_pods in self._down_sources
            and not source_pods.is_deleted(identifier_of(ref))
        )

    def _affects_claims(self, pod: Pod) -> bool:
        """Whether any claim can mean a pod."""
        return bool(pod.claims) or not self._referenced.isdisjoint(identifiers_of(pod))

    def _complete(self, ref: PartialRef, pod: Pod) -> PartialRef:
        """Return all that names the container; the same object while the pod doesn't change."""
        info = pod.info
        known, subjects = self._subjects.get(info.uid, (None, {}))
        if known is not pod:
            subjects = {}
            self._subjects[info.uid] = (pod, subjects)
        subject = subjects.get(ref.container)
        if subject is None:
            container = ref.container
            if not container:
                lasting = [c.name for c in pod.containers if c.kind in {"app", "sidecar"}]
                # With several there is no telling which.
                container = lasting[0] if len(lasting) == 1 else ""
            subject = PartialRef(info.namespace, info.name, container, info.uid)
            subjects[ref.container] = subject
        return subject


def _lifecycle(pod: Pod) -> Mapping[str, object]:
    """Return how far a pod has come."""
    course: dict[str, object] = {c.name: (c.container_id, c.ended) for c in pod.containers}
    course[""] = (pod.ended, pod.started is None)
    return course
