"""Owners of processes: the container or job that a process belongs to, by the ids in its cgroup.

Reports about containers and pods are remembered after their end, since the last usage sample of a
container comes after its end.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from pipeline.base.bounded_dict import set_last
from pipeline.join.container_table import ContainerTable
from pipeline.join.pod_table import PodTable
from pipeline.model import Attribution, PartialRef, Pod, PodInfo, RunningContainer
from pipeline.usage import ContainerName

_PodHolders: TypeAlias = dict[PartialRef, PodInfo | None]
"""Containers of a pod that hold devices, with what is known of the pod."""

MAX_REMEMBERED: Final = 2048
"""How many containers, and names of pods, are remembered: those that were reported last."""


class ProcessOwner(NamedTuple):
    """The container that a process belongs to.

    Attributes:
        container: namespace, pod, container and uid, as in the name of a holder; unknown parts are
            empty. None if not even the pod's uid is known.
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
        self._past_containers: dict[str, tuple[PartialRef, PodInfo | None]] = {}
        self._past_pods: dict[str, Pod] = {}
        self._holders: dict[str, _PodHolders] = {}
        self._past_holders: dict[str, _PodHolders] = {}
        self._cache: dict[tuple[str, str], ProcessOwner] = {}

    def update_containers(self, containers: Iterable[RunningContainer]) -> None:
        """Remember the names of containers by their ids."""
        for one in containers:
            self._remember(one.subject, one.info)
        self._cache.clear()

    def update_pods(self, pods: Iterable[Pod]) -> None:
        """Remember pods and the names of their containers, by the uid that the node knows."""
        for pod in pods:
            info = pod.info
            set_last(self._past_pods, info.uid, pod, MAX_REMEMBERED)
            for one in pod.containers:
                if one.container_id:
                    self._remember(
                        PartialRef(info.namespace, info.name, one.name, info.uid, one.container_id)
                    )
        self._cache.clear()

    def _remember(self, subject: PartialRef, info: PodInfo | None = None) -> None:
        set_last(self._past_containers, subject.container_id, (subject, info), MAX_REMEMBERED)

    def update_holders(self, attributions: Mapping[str, Attribution]) -> None:
        """Record the containers that hold devices. Call this after each change of reports."""
        self._cache.clear()
        self._holders.clear()
        for known in attributions.values():
            for holder in known.holders:
                if holder.subject.uid:
                    of_pod = self._holders.setdefault(holder.subject.uid, {})
                    of_pod[holder.subject] = holder.pod
        for uid, held in self._holders.items():
            set_last(self._past_holders, uid, held, MAX_REMEMBERED)

    def find(self, ref: PartialRef) -> ProcessOwner:
        """Return the container with a pod uid and a container id, as far as it is known.

        A job, and a container without a pod, is known only if a source reports it.

        Args:
            ref: uid and container id; one of the two may be missing.
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
        subject, about = (
            (running.subject, running.info)
            if running
            else self._past_containers.get(ref.container_id, (None, None))
        )
        if subject is not None and subject.kind != "pod":
            return ProcessOwner(
                (subject.namespace, subject.pod, subject.container, subject.uid), about
            )
        uid = ref.uid or (subject.uid if subject else "")
        if not uid or ref.kind != "pod":
            return _NO_OWNER
        pod = self._pods.find(uid) or self._past_pods.get(uid)
        if pod is not None:
            info = pod.info
            name = (
                _container_name(pod, ref, subject)
                or self._only_holder(info.uid, ref)
                or pod.main_container
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
