"""Owners of processes: the container that a process belongs to, by the ids in its cgroup.

Reports about containers and pods are remembered after their end, since the last usage sample of a
container comes after its end.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from pipeline.join.container_table import ContainerTable
from pipeline.join.pod_table import PodTable
from pipeline.model import Attribution, PartialRef, Pod, PodInfo, RunningContainer
from pipeline.usage import ContainerName

K = TypeVar("K")
V = TypeVar("V")

_PodHolders: TypeAlias = dict[PartialRef, PodInfo | None]
"""Containers of a pod that hold devices, with what is known of the pod."""

MAX_REMEMBERED: Final = 2048
"""How many containers, and names of pods, are remembered: those that were reported last."""


class ProcessOwner(NamedTuple):
    """The container that a process belongs to.

    Attributes:
        container: namespace, pod, container and uid, as of a holder; unknown names are empty. None
            where not even the pod's uid is known.
        pod: what is known of its pod.
    """

    container: ContainerName | None
    pod: PodInfo | None = None


_NO_OWNER: Final = ProcessOwner(None)


class ProcessOwners:
    """Finds containers by pod uid and container id.

    Args:
        pods: the pods that sources report.
        containers: the running containers.
    """

    def __init__(self, pods: PodTable, containers: ContainerTable) -> None:
        self._pods = pods
        self._containers = containers
        self._past_containers: dict[str, PartialRef] = {}
        self._past_pods: dict[str, Pod] = {}
        self._holders: dict[str, _PodHolders] = {}
        self._past_holders: dict[str, _PodHolders] = {}
        self._cache: dict[tuple[str, str], ProcessOwner] = {}

    def update_containers(self, containers: Iterable[RunningContainer]) -> None:
        """Remember the names of containers."""
        for one in containers:
            _insert_bounded(self._past_containers, one.subject.container_id, one.subject)
        self._cache.clear()

    def update_pods(self, pods: Iterable[Pod]) -> None:
        """Remember pods and the names of their containers, by the uid that the node knows."""
        for pod in pods:
            info = pod.info
            _insert_bounded(self._past_pods, info.uid, pod)
            for one in pod.containers:
                if one.container_id:
                    _insert_bounded(
                        self._past_containers,
                        one.container_id,
                        PartialRef(info.namespace, info.name, one.name, info.uid, one.container_id),
                    )
        self._cache.clear()

    def update_holders(self, attributions: Mapping[str, Attribution]) -> None:
        """Record the containers that hold devices, after any report has changed."""
        self._cache.clear()
        self._holders.clear()
        for known in attributions.values():
            for holder in known.holders:
                if holder.subject.uid:
                    of_pod = self._holders.setdefault(holder.subject.uid, {})
                    of_pod[holder.subject] = holder.pod
        for uid, held in self._holders.items():
            _insert_bounded(self._past_holders, uid, held)

    def find(self, ref: PartialRef) -> ProcessOwner:
        """Return the container with a pod uid and a container id.

        Args:
            ref: uid and container id; one of them may be missing.
        """
        key = (ref.uid, ref.container_id)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= MAX_REMEMBERED:
                self._cache.clear()
            found = self._cache[key] = self._resolve(ref)
        return found

    def _resolve(self, ref: PartialRef) -> ProcessOwner:
        running = self._containers.find(ref.container_id) if ref.container_id else None
        subject = running.subject if running else self._past_containers.get(ref.container_id)
        uid = ref.uid or (subject.uid if subject else "")
        if not uid:
            return _NO_OWNER
        pod = self._pods.find(uid) or self._past_pods.get(uid)
        if pod is not None:
            info = pod.info
            name = (
                _container_name(pod, ref, subject)
                or self._only_holder(info.uid, ref)
                or _main_container(pod)
            )
            return ProcessOwner((info.namespace, info.name, name, info.uid), info)
        if subject is not None:
            return ProcessOwner((subject.namespace, subject.pod, subject.container, uid))
        if holding := self._holders_of(uid):
            held, info_ = next(iter(holding.items()))
            return ProcessOwner((held.namespace, held.pod, self._only_holder(uid, ref), uid), info_)
        return ProcessOwner(("", "", "", uid))

    def _holders_of(self, uid: str) -> _PodHolders:
        """Return a pod's containers that hold devices, or held them last."""
        return self._holders.get(uid) or self._past_holders.get(uid) or {}

    def _only_holder(self, uid: str, ref: PartialRef) -> str:
        """Return the only container of a pod that holds devices, unless `ref` is another one."""
        holders = self._holders_of(uid)
        names = {held.container for held in holders}
        ids = {held.container_id for held in holders}
        if len(names) != 1 or not ids <= {"", ref.container_id}:
            return ""
        return next(iter(names))


def _container_name(pod: Pod, ref: PartialRef, subject: PartialRef | None) -> str:
    """Return the name of the container, as far as it is reported."""
    if ref.container_id:
        for one in pod.containers:
            if one.container_id == ref.container_id:
                return one.name
    return subject.container if subject is not None else ""


def _main_container(pod: Pod) -> str:
    """Return the only container of a pod that is not an init container, if there is only one."""
    names = [one.name for one in pod.containers if one.kind in {"app", "sidecar"}]
    return names[0] if len(names) == 1 else ""


def _insert_bounded(table: dict[K, V], key: K, value: V) -> None:
    """Put a value at the end, and remove the oldest one if there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > MAX_REMEMBERED:
        del table[next(iter(table))]
