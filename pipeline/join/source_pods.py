"""The pods that one source tells of."""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pipeline.model import NS, Instant, PartialRef, Pod

Name: TypeAlias = str | tuple[str, str]
"""A pod's uid, or its namespace and name."""

_REMEMBERED_NS: Final = 600 * 1_000_000_000
"""How long a pod that is gone is remembered once nobody names it any more. Longer than a source
that polls or follows a file may be behind: what such a source says is no proof that the pod came
back."""

_MOST_MIRRORED: Final = 1024
"""How many static pods without a mirror are remembered."""


def name_of(ref: PartialRef) -> Name:
    """Return what a source calls the pod: its uid, if it knows that."""
    return ref.uid or (ref.namespace, ref.pod)


def place_of(pod: Pod) -> tuple[str, str]:
    """Return a pod's namespace and name."""
    return pod.info.namespace, pod.info.name


def names_of(pod: Pod) -> list[Name]:
    """Return everything that a pod says it goes by."""
    info = pod.info
    names: list[Name] = [info.uid, (info.namespace, info.name)]
    return [*names, pod.static_uid] if pod.static_uid else names


@dataclass(slots=True, eq=False)
class Told:
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
    _shown: dict[str, Pod] = field(default_factory=dict)
    _named: dict[Name, Pod] = field(default_factory=dict)
    _taken_on: dict[str, int] = field(default_factory=dict)
    _gone: dict[Name, int] = field(default_factory=dict)
    _mirrored: dict[str, tuple[str, str]] = field(default_factory=dict)

    def list(self, at: Instant) -> None:
        """Note that the source tells of all its pods."""
        if not self.listed:
            self.listed, self._listed_ns = True, at.mono_ns

    def put(self, pod: Pod, at: Instant) -> None:
        """Take in a pod as it is now."""
        uid = pod.info.uid
        self._unname(uid)
        self.pods[uid] = pod
        shown = self._shown[uid] = self._identified(pod)
        for name in (uid, shown.info.uid, place_of(pod)):
            self._named[name] = shown
        if pod.started is not None:
            self._taken_on.setdefault(shown.info.uid, at.mono_ns)

    def drop(self, uid: str, at: Instant) -> None:
        """Take out a pod, and keep in mind that it is gone."""
        pod, shown = self.pods.pop(uid), self._shown[uid]
        self._unname(uid)
        _note(self._gone, uid, at.mono_ns)
        if shown.info.uid == uid:
            _note(self._gone, place_of(pod), at.mono_ns)
        else:
            # A static pod's mirror is gone: whether the pod is, the kubelet alone knows.
            self._keep_mirror(shown)
        if shown.info.uid not in self._named:
            self._taken_on.pop(shown.info.uid, None)

    def shown(self, uid: str) -> Pod | None:
        """Return a pod as it is shown, by the uid of the API server."""
        return self._shown.get(uid)

    def _identified(self, pod: Pod) -> Pod:
        """Return a pod under the uid by which the node knows it."""
        if not pod.static_uid or not self._may_be(pod, pod.static_uid):
            return pod
        return replace(pod, info=replace(pod.info, uid=pod.static_uid))

    def _may_be(self, pod: Pod, static_uid: str) -> bool:
        """Whether a pod may go by the uid that it names as its static pod's.

        Whoever creates a pod can name any: another pod's uid is that pod's, and a static pod's is
        its first mirror's, until one of the same name follows.
        """
        if static_uid in self._gone or static_uid in self.pods:
            return False
        place = self._mirrored.get(static_uid)
        if (other := self._named.get(static_uid)) is not None:
            place = place_of(other)
        return place is None or place == place_of(pod)

    def _keep_mirror(self, shown: Pod) -> None:
        uid = shown.info.uid
        self._mirrored.pop(uid, None)
        self._mirrored[uid] = place_of(shown)
        if len(self._mirrored) > _MOST_MIRRORED:
            del self._mirrored[next(iter(self._mirrored))]

    def _unname(self, uid: str) -> None:
        shown = self._shown.pop(uid, None)
        if shown is None:
            return
        for name in (uid, shown.info.uid, place_of(shown)):
            # It may be another's by now: a namesake's, or a new mirror's of the same static pod.
            if self._named.get(name) is shown:
                del self._named[name]

    def fade(self, at: Instant) -> None:
        """Let go of what the source said, but for what can't change any more: a uid never returns.

        So a pod that is gone stays gone, and one that has ended stays ended.
        """
        for uid in [uid for uid, pod in self.pods.items() if pod.ended]:
            self.drop(uid, at)
        for uid in self.pods:
            if (shown := self._shown[uid]).info.uid != uid:
                self._keep_mirror(shown)
            self._unname(uid)
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
        """Whether a name meant this pod at a moment: the kubelet had taken the pod on.

        What the source had told by then is proof enough: the wall clock may have been set since.
        Starts are told in whole seconds, rounded down. Within that second, and before the start is
        heard of, the name can mean nobody else if no other pod has had it since before that moment.

        Args:
            pod: one that is told of, as it is shown.
            said: the moment.
        """
        started = pod.started
        if started is not None:
            heard = self._taken_on.get(pod.info.uid)
            if heard is not None and heard <= said.mono_ns:
                return True
            if started.wall_ns + NS <= said.wall_ns:
                return True
        if not self.listed or said.mono_ns < self._listed_ns:
            return False
        namesake = self._gone.get(place_of(pod))
        if started is None:
            return namesake is None
        return namesake is None or (namesake < said.mono_ns and started.wall_ns <= said.wall_ns)

    def may_mean(self, pod: Pod, moment: Instant) -> bool:
        """Whether a name meant this pod at a moment, as far as nothing tells otherwise.

        Unlike `took_on` it is so of a moment before the source spoke, too, unless the pod started
        in a later second: whether another pod had the name then is not known.
        """
        if self.took_on(pod, moment):
            return True
        unknown = moment.mono_ns < self._listed_ns and place_of(pod) not in self._gone
        started = pod.started
        return unknown and (started is None or started.wall_ns <= moment.wall_ns)


def _note(table: dict[Name, int], name: Name, now_ns: int) -> None:
    """Put a name at the end, so that the table stays in the order of time."""
    table.pop(name, None)
    table[name] = now_ns
