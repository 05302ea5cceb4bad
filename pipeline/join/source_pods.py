"""The pods that one source reports."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pipeline.base.bounded_dict import set_last
from pipeline.model import NS, Instant, PartialRef, Pod, owner_kind

PodIdentifier: TypeAlias = str | tuple[str, str]
"""A pod's uid, or its namespace and name."""

_DELETED_RETENTION_NS: Final = 600 * 1_000_000_000
"""How long a deleted pod is remembered after the last claim that refers to it. Longer than the
delay of a source that polls or follows a file: a claim of such a source does not show that the pod
came back."""

_MAX_STATIC_PODS: Final = 1024
"""How many static pods without a mirror pod are remembered."""


def identifier_of(ref: PartialRef) -> PodIdentifier:
    """Return the uid of the pod, or its name where the source does not know the uid."""
    return ref.uid or (ref.namespace, ref.pod)


def namespaced_name(pod: Pod) -> tuple[str, str]:
    """Return a pod's namespace and name."""
    return pod.info.namespace, pod.info.name


def identifiers_of(pod: Pod) -> list[PodIdentifier]:
    """Return all names and uids that a pod has by its own data."""
    info = pod.info
    names: list[PodIdentifier] = [info.uid, (info.namespace, info.name)]
    return [*names, pod.static_uid] if pod.static_uid else names


@dataclass(slots=True, eq=False)
class SourcePods:
    """The pods that one source reports.

    A static pod is shown under the uid that the kubelet gave it. This uid stays the same when the
    mirror pod is created again, while the mirror pod gets another uid each time.

    Attributes:
        listed: whether the source has listed all its pods, and has not been silent for too long
            since.
        good_for_ns: how long the list is valid without a confirmation.
        pods: the pods as reported, by the uid of the API server.
    """

    listed: bool = False
    good_for_ns: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    _listed_ns: int = 0
    _with_node_uid: dict[str, Pod] = field(default_factory=dict)
    _by_identifier: dict[PodIdentifier, Pod] = field(default_factory=dict)
    _admitted_ns: dict[str, int] = field(default_factory=dict)
    _deleted: dict[PodIdentifier, int] = field(default_factory=dict)
    _static_pods: dict[str, tuple[str, str]] = field(default_factory=dict)

    def mark_listed(self, at: Instant) -> None:
        """Record that the source lists all its pods."""
        if not self.listed:
            self.listed, self._listed_ns = True, at.mono_ns

    def upsert(self, pod: Pod, at: Instant) -> None:
        """Add or change a pod."""
        uid = pod.info.uid
        self._remove_identifiers(uid)
        self.pods[uid] = pod
        node_pod = self._with_node_uid[uid] = self._find_with_node_uid(pod)
        for name in (uid, node_pod.info.uid, namespaced_name(pod)):
            self._by_identifier[name] = node_pod
        if pod.started is not None:
            self._admitted_ns.setdefault(node_pod.info.uid, at.mono_ns)

    def delete(self, uid: str, at: Instant) -> None:
        """Delete a pod, and remember that it is gone."""
        pod, node_pod = self.pods.pop(uid), self._with_node_uid[uid]
        self._remove_identifiers(uid)
        _note(self._deleted, uid, at.mono_ns)
        if node_pod.info.uid == uid:
            _note(self._deleted, namespaced_name(pod), at.mono_ns)
        else:
            # The mirror pod is gone. Only the kubelet knows whether the static pod is.
            set_last(self._static_pods, node_pod.info.uid, namespaced_name(pod), _MAX_STATIC_PODS)
        if node_pod.info.uid not in self._by_identifier:
            self._admitted_ns.pop(node_pod.info.uid, None)

    def with_node_uid(self, uid: str) -> Pod | None:
        """Return the pod with this uid of the API server, under the uid that the node knows."""
        return self._with_node_uid.get(uid)

    def _find_with_node_uid(self, pod: Pod) -> Pod:
        """Return a pod under the uid by which the node knows it."""
        if not pod.static_uid or not self._may_use_static_uid(pod, pod.static_uid):
            return pod
        return replace(pod, info=replace(pod.info, uid=pod.static_uid))

    def _may_use_static_uid(self, pod: Pod, static_uid: str) -> bool:
        """Whether a pod may have the static uid that it names.

        A user can create a pod that names any uid. The uid of another pod belongs to that pod. The
        uid of a static pod belongs to its first mirror pod and later ones of the same name.
        """
        if static_uid in self._deleted or static_uid in self.pods:
            return False
        if owner_kind(static_uid) != "pod":  # the uid of a job, or of a container without a pod
            return False
        owner = self._static_pods.get(static_uid)
        if (other := self._by_identifier.get(static_uid)) is not None:
            owner = namespaced_name(other)
        return owner is None or owner == namespaced_name(pod)

    def _remove_identifiers(self, uid: str) -> None:
        node_pod = self._with_node_uid.pop(uid, None)
        if node_pod is None:
            return
        for name in (uid, node_pod.info.uid, namespaced_name(node_pod)):
            # Another pod may have it now: one with the same name, or a new mirror pod.
            if self._by_identifier.get(name) is node_pod:
                del self._by_identifier[name]

    def expire(self, at: Instant) -> None:
        """Remove what the source reported, except for what cannot change: a uid is never reused.

        So a deleted pod stays deleted, and a pod that has ended stays ended.
        """
        for uid in [uid for uid, pod in self.pods.items() if pod.ended]:
            self.delete(uid, at)
        for uid in self.pods:
            if (node_pod := self._with_node_uid[uid]).info.uid != uid:
                owner = namespaced_name(node_pod)
                set_last(self._static_pods, node_pod.info.uid, owner, _MAX_STATIC_PODS)
            self._remove_identifiers(uid)
        self.listed = False
        self.pods.clear()
        self._admitted_ns.clear()
        for name in [name for name in self._deleted if not isinstance(name, str)]:
            del self._deleted[name]

    def find(self, name: PodIdentifier) -> Pod | None:
        """Return the pod with a name or uid, under the uid that the node knows; None if unknown."""
        return self._by_identifier.get(name)

    def is_deleted(self, name: PodIdentifier) -> bool:
        """Whether a pod had this name or uid and is gone."""
        return name in self._deleted

    def prune(self, now_ns: int, referenced: Container[PodIdentifier]) -> None:
        """Forget pods that were deleted long ago, unless a claim still refers to them."""
        while self._deleted:
            name, since = next(iter(self._deleted.items()))
            if since + _DELETED_RETENTION_NS > now_ns:
                return
            del self._deleted[name]
            if name in referenced:
                self._deleted[name] = now_ns

    def was_admitted(self, pod: Pod, moment: Instant) -> bool:
        """Whether the kubelet had admitted this pod at a moment, so that its name meant this pod.

        A report of the start before that moment is sufficient, since the wall clock may have been
        set since. Otherwise the reported start counts, which is rounded down to whole seconds.
        Within that second, and before the start is reported, the name means this pod if no other
        pod has had the name since before that moment.

        Args:
            pod: a reported pod, under the uid that the node knows.
            moment: the moment.
        """
        started = pod.started
        if started is not None:
            reported_ns = self._admitted_ns.get(pod.info.uid)
            if reported_ns is not None and reported_ns <= moment.mono_ns:
                return True
            if started.wall_ns + NS <= moment.wall_ns:
                return True
        if not self.listed or moment.mono_ns < self._listed_ns:
            return False
        namesake_deleted_ns = self._deleted.get(namespaced_name(pod))
        return namesake_deleted_ns is None or (
            started is not None
            and namesake_deleted_ns < moment.mono_ns
            and started.wall_ns <= moment.wall_ns
        )

    def may_refer_to(self, pod: Pod, moment: Instant) -> bool:
        """Whether a name meant this pod at a moment, unless something is known against it.

        Unlike `was_admitted`, this includes moments before the first list of the source, for which
        it is unknown whether another pod had the name, unless the pod started in a later second.
        """
        if self.was_admitted(pod, moment):
            return True
        unknown = moment.mono_ns < self._listed_ns and namespaced_name(pod) not in self._deleted
        started = pod.started
        return unknown and (started is None or started.wall_ns <= moment.wall_ns)


def _note(table: dict[PodIdentifier, int], name: PodIdentifier, now_ns: int) -> None:
    """Record the time of a name at the end of the table, which stays sorted by time."""
    table.pop(name, None)
    table[name] = now_ns
