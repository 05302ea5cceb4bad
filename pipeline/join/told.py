"""The pods that one source tells of."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pipeline.model import NS, Instant, PartialRef, Pod

Name: TypeAlias = str | tuple[str, str]
"""A pod's uid, or its namespace and name."""

_REMEMBERED_NS: Final = 600 * 1_000_000_000
"""How long a pod that is gone is remembered once nobody names it any more. Longer than a source
that polls or follows a file may be behind: what such a source says is no proof that the pod came
back."""


def name_of(ref: PartialRef) -> Name:
    """Return what a source calls the pod: its uid, if it knows that."""
    return ref.uid or (ref.namespace, ref.pod)


def names_of(pod: Pod) -> list[Name]:
    """Return everything that a pod goes by."""
    info = pod.info
    names: list[Name] = [info.uid, (info.namespace, info.name)]
    return [*names, pod.static_uid] if pod.static_uid else names


@dataclass(slots=True, eq=False)
class Told:
    """What one source tells of.

    Attributes:
        listed: the source told of all its pods, and has not been silent for too long since.
        good_for_ns: how long that stands when the source falls silent.
        pods: by uid.
    """

    listed: bool = False
    good_for_ns: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    _named: dict[Name, Pod] = field(default_factory=dict)
    _taken_on: dict[str, int] = field(default_factory=dict)
    _gone: dict[Name, int] = field(default_factory=dict)

    def put(self, pod: Pod, at: Instant) -> None:
        """Take in a pod as it is now."""
        uid = pod.info.uid
        before = self.pods.get(uid)
        if before is not None:
            self._unname(before)
        self.pods[uid] = pod
        place = (pod.info.namespace, pod.info.name)
        for name in names_of(pod):
            if name in {pod.info.uid, place} or self._may_be(pod, pod.static_uid):
                self._named[name] = pod
        if pod.started is not None:
            self._taken_on.setdefault(uid, at.mono_ns)

    def drop(self, uid: str, at: Instant) -> None:
        """Take out a pod, and keep in mind that it is gone."""
        pod = self.pods.pop(uid)
        self._taken_on.pop(uid, None)
        self._unname(pod)
        # A static pod's mirror is gone: whether the pod is, the kubelet alone knows.
        for name in [uid] if pod.static_uid else names_of(pod):
            _note(self._gone, name, at.mono_ns)

    def _may_be(self, pod: Pod, static_uid: str) -> bool:
        """Whether a pod may go by the uid that it names as its static pod's.

        Whoever creates a pod can name any: another pod's uid is that pod's, and a static pod's is
        its first mirror's, until one of the same name follows.
        """
        if static_uid in self._gone:
            return False
        other = self._named.get(static_uid)
        return other is None or (
            other.info.uid != static_uid
            and (other.info.namespace, other.info.name) == (pod.info.namespace, pod.info.name)
        )

    def _unname(self, pod: Pod) -> None:
        for name in names_of(pod):
            # It may be another's by now: a namesake's, or a new mirror's of the same static pod.
            if self._named.get(name) is pod:
                del self._named[name]

    def fade(self, at: Instant) -> None:
        """Let go of what the source said, but for what can't change any more: a uid never returns.

        So a pod that is gone stays gone, and one that has ended stays ended.
        """
        for uid in [uid for uid, pod in self.pods.items() if pod.ended]:
            self.drop(uid, at)
        for pod in self.pods.values():
            self._unname(pod)
        self.listed = False
        self.pods.clear()
        self._taken_on.clear()
        for name in [name for name in self._gone if not isinstance(name, str)]:
            del self._gone[name]

    def find(self, name: Name) -> Pod | None:
        """Return the pod that goes by a name."""
        return self._named.get(name)

    def is_gone(self, name: Name) -> bool:
        """Whether a pod went by that name and is no more."""
        return name in self._gone

    def forget(self, now_ns: int, named: Container[Name]) -> None:
        """Let go of what has been gone for long, unless somebody still names it."""
        while self._gone:
            name, since = next(iter(self._gone.items()))
            if since + _REMEMBERED_NS > now_ns:
                return
            del self._gone[name]
            if name in named:
                self._gone[name] = now_ns

    def took_on(self, pod: Pod, said: Instant) -> bool:
        """Whether the kubelet had taken a pod on at a moment; else its name was another's then.

        What the source had told by then is proof enough: the wall clock may have been set since.
        """
        if pod.started is None:
            return False
        heard = self._taken_on.get(pod.info.uid)
        if heard is not None and heard <= said.mono_ns:
            return True
        # The start is told in whole seconds, rounded down.
        return pod.started.wall_ns + NS <= said.wall_ns


def _note(table: dict[Name, int], name: Name, now_ns: int) -> None:
    """Put a name at the end, so that the table stays in the order of time."""
    table.pop(name, None)
    table[name] = now_ns
