"""The pods that one source tells of."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pipeline.model import NS, Instant, PartialRef, Pod

PodIdentifier: TypeAlias = str | tuple[str, str]
"""A pod's uid, or its namespace and name."""

_DELETED_RETENTION_NS: Final = 600 * 1_000_000_000
"""How long a pod that is gone is remembered once nobody names it any more. Longer than a source
that polls or follows a file may be behind: what such a source says is no proof that the pod came
back."""

_MAX_STATIC_PODS: Final = 1024
"""How many static pods without a mirror are remembered."""


def identifier_of(ref: PartialRef) -> PodIdentifier:
    """Return what a source calls the pod: its uid, if it knows that."""
    return ref.uid or (ref.namespace, ref.pod)


def namespaced_name(pod: Pod) -> tuple[str, str]:
    """Return a pod's namespace and name."""
    return pod.info.namespace, pod.info.name


def identifiers_of(pod: Pod) -> list[PodIdentifier]:
    """Return everything that a pod says it goes by."""
    info = pod.info
    names: list[PodIdentifier] = [info.uid, (info.namespace, info.name)]
    return [*names, pod.static_uid] if pod.static_uid else names


@dataclass(slots=True, eq=False)
class SourcePods:
    """What one source tells of.

    A static pod is shown under its own uid, which the kubelet gave it and which stays the same when
    its mirror is made again; the mirror has another uid each time.

    Attributes:
        listed: the source told of all its pods, and has not been silent for too long since.
        good_for_ns: how long that stands when the source falls silent.
        pods: as they were told, by the uid of the API server.
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
        """Note that the source tells of all its pods."""
        if not self.listed:
            self.listed, self._listed_ns = True, at.mono_ns

    def upsert(self, pod: Pod, at: Instant) -> None:
        """Take in a pod as it is now."""
        uid = pod.info.uid
        self._remove_identifiers(uid)
        self.pods[uid] = pod
        shown = self._with_node_uid[uid] = self._find_with_node_uid(pod)
        for name in (uid, shown.info.uid, namespaced_name(pod)):
            self._by_identifier[name] = shown
        if pod.started is not None:
            self._admitted_ns.setdefault(shown.info.uid, at.mono_ns)

    def delete(self, uid: str, at: Instant) -> None:
        """Take out a pod, and keep in mind that it is gone."""
        pod, shown = self.pods.pop(uid), self._with_node_uid[uid]
        self._remove_identifiers(uid)
        _note(self._deleted, uid, at.mono_ns)
        if shown.info.uid == uid:
            _note(self._deleted, namespaced_name(pod), at.mono_ns)
        else:
            # A static pod's mirror is gone: whether the pod is, the kubelet alone knows.
            self._remember_static_pod(shown)
        if shown.info.uid not in self._by_identifier:
            self._admitted_ns.pop(shown.info.uid, None)

    def with_node_uid(self, uid: str) -> Pod | None:
        """Return a pod as it is shown, by the uid of the API server."""
        return self._with_node_uid.get(uid)

    def _find_with_node_uid(self, pod: Pod) -> Pod:
        """Return a pod under the uid by which the node knows it."""
        if not pod.static_uid or not self._may_use_static_uid(pod, pod.static_uid):
            return pod
        return replace(pod, info=replace(pod.info, uid=pod.static_uid))

    def _may_use_static_uid(self, pod: Pod, static_uid: str) -> bool:
        """Whether a pod may go by the uid that it names as its static pod's.

        Whoever creates a pod can name any: another pod's uid is that pod's, and a static pod's is
        its first mirror's, until one of the same name follows.
        """
        if static_uid in self._deleted or static_uid in self.pods:
            return False
        place = self._static_pods.get(static_uid)
        if (other := self._by_identifier.get(static_uid)) is not None:
            place = namespaced_name(other)
        return place is None or place == namespaced_name(pod)

    def _remember_static_pod(self, shown: Pod) -> None:
        uid = shown.info.uid
        self._static_pods.pop(uid, None)
        self._static_pods[uid] = namespaced_name(shown)
        if len(self._static_pods) > _MAX_STATIC_PODS:
            del self._static_pods[next(iter(self._static_pods))]

    def _remove_identifiers(self, uid: str) -> None:
        shown = self._with_node_uid.pop(uid, None)
        if shown is None:
            return
        for name in (uid, shown.info.uid, namespaced_name(shown)):
            # It may be another's by now: a namesake's, or a new mirror's of the same static pod.
            if self._by_identifier.get(name) is shown:
                del self._by_identifier[name]

    def expire(self, at: Instant) -> None:
        """Let go of what the source said, but for what can't change any more: a uid never returns.

        So a pod that is gone stays gone, and one that has ended stays ended.
        """
        for uid in [uid for uid, pod in self.pods.items() if pod.ended]:
            self.delete(uid, at)
        for uid in self.pods:
            if (shown := self._with_node_uid[uid]).info.uid != uid:
                self._remember_static_pod(shown)
            self._remove_identifiers(uid)
        self.listed = False
        self.pods.clear()
        self._admitted_ns.clear()
        for name in [name for name in self._deleted if not isinstance(name, str)]:
            del self._deleted[name]

    def find(self, name: PodIdentifier) -> Pod | None:
        """Return the pod that goes by a name."""
        return self._by_identifier.get(name)

    def is_deleted(self, name: PodIdentifier) -> bool:
        """Whether a pod went by that name and is no more."""
        return name in self._deleted

    def prune(self, now_ns: int, referenced: Container[PodIdentifier]) -> None:
        """Let go of what has been gone for long, unless somebody still names it."""
        while self._deleted:
            name, since = next(iter(self._deleted.items()))
            if since + _DELETED_RETENTION_NS > now_ns:
                return
            del self._deleted[name]
            if name in referenced:
                self._deleted[name] = now_ns

    def was_admitted(self, pod: Pod, moment: Instant) -> bool:
        """Whether a name meant this pod at a moment: the kubelet had taken the pod on.

        What the source had told by then is proof enough: the wall clock may have been set since.
        Starts are told in whole seconds, rounded down. Within that second, and before the start is
        heard of, the name can mean nobody else if no other pod has had it since before that moment.

        Args:
            pod: one that is told of, as it is shown.
            moment: the moment.
        """
        started = pod.started
        if started is not None:
            heard = self._admitted_ns.get(pod.info.uid)
            if heard is not None and heard <= moment.mono_ns:
                return True
            if started.wall_ns + NS <= moment.wall_ns:
                return True
        if not self.listed or moment.mono_ns < self._listed_ns:
            return False
        namesake = self._deleted.get(namespaced_name(pod))
        if started is None:
            return namesake is None
        return namesake is None or (namesake < moment.mono_ns and started.wall_ns <= moment.wall_ns)

    def may_refer_to(self, pod: Pod, moment: Instant) -> bool:
        """Whether a name meant this pod at a moment, as far as nothing tells otherwise.

        Unlike `was_admitted` it is so of a moment before the source spoke, too, unless the pod
        started in a later second: whether another pod had the name then is not known.
        """
        if self.was_admitted(pod, moment):
            return True
        unknown = moment.mono_ns < self._listed_ns and namespaced_name(pod) not in self._deleted
        started = pod.started
        return unknown and (started is None or started.wall_ns <= moment.wall_ns)


def _note(table: dict[PodIdentifier, int], name: PodIdentifier, now_ns: int) -> None:
    """Put a name at the end, so that the table stays in the order of time."""
    table.pop(name, None)
    table[name] = now_ns
