"""Whose a process is, by what its cgroup says: ids alone, for which others know the names.

What is told of a container or a pod is kept in mind when it is gone: its last look comes after its
end.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from pipeline.join.container_table import ContainerTable
from pipeline.join.pod_table import PodTable
from pipeline.model import Attribution, PartialRef, Pod, PodInfo, RunningContainer
from pipeline.usage import Name

K = TypeVar("K")
V = TypeVar("V")

_Held: TypeAlias = dict[PartialRef, PodInfo | None]
"""Containers of a pod that hold something, and what is known of their pod."""

MOST_REMEMBERED: Final = 2048
"""How many containers, and names of pods, are kept in mind: those that were told of last."""


class Owner(NamedTuple):
    """A container.

    Attributes:
        container: namespace, pod, container and uid, as of a holder; names that nobody told are
            empty. None where not even its pod's uid is known.
        pod: what is known of its pod.
    """

    container: Name | None
    pod: PodInfo | None = None


_NOBODY: Final = Owner(None)


class Owners:
    """Finds containers by pod uid and container id.

    Args:
        pods: the pods that sources tell of.
        containers: the containers that run.
    """

    def __init__(self, pods: PodTable, containers: ContainerTable) -> None:
        self._pods = pods
        self._containers = containers
        self._was_container: dict[str, PartialRef] = {}
        self._was_pod: dict[str, Pod] = {}
        self._holding: dict[str, _Held] = {}
        self._was_holding: dict[str, _Held] = {}
        self._found: dict[tuple[str, str], Owner] = {}

    def tell_containers(self, containers: Iterable[RunningContainer]) -> None:
        """Keep in mind what was told of containers."""
        for one in containers:
            _keep(self._was_container, one.subject.container_id, one.subject)
        self._found.clear()

    def tell_pods(self, pods: Iterable[Pod]) -> None:
        """Keep in mind what was told of pods, as they are shown."""
        for pod in pods:
            info = pod.info
            _keep(self._was_pod, info.uid, pod)
            for one in pod.containers:
                if one.container_id:
                    _keep(
                        self._was_container,
                        one.container_id,
                        PartialRef(info.namespace, info.name, one.name, info.uid, one.container_id),
                    )
        self._found.clear()

    def changed(self, attributions: Mapping[str, Attribution]) -> None:
        """Note that something was told, or that others hold something."""
        self._found.clear()
        self._holding.clear()
        for known in attributions.values():
            for holder in known.holders:
                if holder.subject.uid:
                    of_pod = self._holding.setdefault(holder.subject.uid, {})
                    of_pod[holder.subject] = holder.pod
        for uid, held in self._holding.items():
            _keep(self._was_holding, uid, held)

    def find(self, ref: PartialRef) -> Owner:
        """Return the container that is meant.

        Args:
            ref: uid and container id, one of which may be missing.
        """
        key = (ref.uid, ref.container_id)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            found = self._found[key] = self._resolve(ref)
        return found

    def _resolve(self, ref: PartialRef) -> Owner:
        running = self._containers.find(ref.container_id) if ref.container_id else None
        subject = running.subject if running else self._was_container.get(ref.container_id)
        uid = ref.uid or (subject.uid if subject else "")
        if not uid:
            return _NOBODY
        pod = self._pods.find(uid) or self._was_pod.get(uid)
        if pod is not None:
            info = pod.info
            name = _name(pod, ref, subject) or self._sole(info.uid, ref) or _lasting(pod)
            return Owner((info.namespace, info.name, name, info.uid), info)
        if subject is not None:
            return Owner((subject.namespace, subject.pod, subject.container, uid))
        if holding := self._held(uid):
            held, info_ = next(iter(holding.items()))
            return Owner((held.namespace, held.pod, self._sole(uid, ref), uid), info_)
        return Owner(("", "", "", uid))

    def _held(self, uid: str) -> _Held:
        """Return what holds something of a pod, or did last: its last look comes after its end."""
        return self._holding.get(uid) or self._was_holding.get(uid) or {}

    def _sole(self, uid: str, ref: PartialRef) -> str:
        """Return the one container of a pod that holds anything, or did; unless it is another."""
        holding = self._held(uid)
        names = {held.container for held in holding}
        ids = {held.container_id for held in holding}
        if len(names) != 1 or not ids <= {"", ref.container_id}:
            return ""
        return next(iter(names))


def _name(pod: Pod, ref: PartialRef, subject: PartialRef | None) -> str:
    """Return the name of the container, as far as it is told."""
    if ref.container_id:
        for one in pod.containers:
            if one.container_id == ref.container_id:
                return one.name
    return subject.container if subject is not None else ""


def _lasting(pod: Pod) -> str:
    """Return the one container of a pod that doesn't end before the others."""
    lasting = [one.name for one in pod.containers if one.kind in {"app", "sidecar"}]
    return lasting[0] if len(lasting) == 1 else ""


def _keep(table: dict[K, V], key: K, value: V) -> None:
    """Put a value at the end, and let go of the oldest if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > MOST_REMEMBERED:
        del table[next(iter(table))]
