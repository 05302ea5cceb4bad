"""A simulated node full of pods: kubelet, API server and checkpoint, which agree."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tests.fakes import kubelet
from tests.fakes.kubelet import FakeKubelet
from tests.sources.checkpoint import checkpoints
from tests.sources.pods.pod_objects import raw_container, raw_pod
from tests.support.kube import ApiServer, Collection

RESOURCE: Final = "nvidia.com/mig-1g.10gb"
PODS: Final = "/api/v1/pods"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
# Data of a pod that podgpu does not use; with it a pod has about eight kilobytes.
_MANAGED: Final[dict[str, Any]] = {
    f"f:{at}": {"f:value": {}, "f:name": {}, ".": {}} for at in range(80)
}
_ENV: Final = [{"name": f"SETTING_{at}", "value": "x" * 60} for at in range(40)]

ChangeKind = Literal["ended", "began", "began, API server last"]


class Owner(NamedTuple):
    namespace: str
    pod: str
    container: str
    uid: str


@dataclass(slots=True)
class Holding:
    """The time for which an owner holds a device, on the monotonic clock."""

    owner: Owner
    since: float
    until: float = float("inf")


class Change(NamedTuple):
    """A change that a page has to show.

    Attributes:
        at: the time of the report that makes the change known.
        kind: the kind of change.
        device: the UUID of the MIG instance.
        owner: the owner that holds it, or does not hold it any more.
    """

    at: float
    kind: ChangeKind
    device: str
    owner: Owner


@dataclass(slots=True)
class SimulatedPod:
    """A pod; `device` is empty if it holds none."""

    owner: Owner
    device: str
    raw: dict[str, Any]


class SimulatedCluster:
    """The pods of a node, and the servers and files that report them.

    Attributes:
        kubelet: the fake kubelet.
        holdings: all holdings so far, by device.
        on_change: called with each change when it is reported.
        changed: the number of changes of the holder of a device.
        reports: the number of reports about pods with a device.

    Args:
        folder: the folder of sockets and files.
        devices: the UUIDs of MIG instances.
        pods: the number of running pods; the first of them hold a device each.
    """

    def __init__(self, folder: Path, devices: list[str], pods: int) -> None:
        self.holdings: dict[str, list[Holding]] = {}
        self.on_change: Callable[[Change], None] = lambda _: None
        self.changed = 0
        self.reports = 0
        sockets, plugins = folder / "pod-resources", folder / "device-plugins"
        sockets.mkdir()
        plugins.mkdir()
        self.kubelet = FakeKubelet(sockets / "kubelet.sock")
        self.kubelet.offered = {RESOURCE: devices}
        self._checkpoint = plugins / "kubelet_internal_checkpoint"
        self._kubeconfig = folder / "kubeconfig"
        self._api = {PODS: Collection(), SLICES: Collection()}
        self._listed: dict[str, Any] = {}
        self._entries: dict[str, dict[str, Any]] = {}
        self._numbers = count()
        self._late = cycle((False, True, False))
        self._same_name = cycle((False, False, True))
        self._pods = [self._settled(device) for device in [*devices, *[""] * pods][:pods]]
        self._write()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[dict[str, dict[str, object]]]:
        """Yield the options of the sources for this cluster, by kind."""
        server = ApiServer(self._api)
        async with self.kubelet, server.serving():
            server.kubeconfig(self._kubeconfig)
            yield {
                "podresources": {"sockets": [str(self.kubelet.path)]},
                "pods": {"kubeconfig": str(self._kubeconfig), "labels": ["team"]},
                "checkpoint": {"path": str(self._checkpoint)},
            }
            # End the streams that no client reads any more.
            server.hang_up()
            for collection in self._api.values():
                collection.bookmark()

    async def churn(self, seconds: float, each: float, share: float) -> None:
        """End pods and start others in their place.

        Args:
            seconds: the duration.
            each: seconds from one replacement to the next.
            share: the share of the replacements in which a device changes its holder.
        """
        held = cycle([at for at, pod in enumerate(self._pods) if pod.device])
        idle = cycle([at for at, pod in enumerate(self._pods) if not pod.device])
        start, due = time.monotonic(), 0.5
        async with asyncio.TaskGroup() as group:
            for number in range(round(seconds / each)):
                await asyncio.sleep(start + number * each - time.monotonic())
                due += share
                group.create_task(self._replace(next(held if due >= 1 else idle)))
                due -= due >= 1

    async def _replace(self, at: int) -> None:
        """End a pod and start another. One in three has the same name, and one in three is reported
        late by the API server.
        """
        old = self._pods[at]
        await self._end(old)
        new = self._make(old.device, old.owner.pod if next(self._same_name) else "")
        late = next(self._late)
        if not late:
            self._report(new)
        await asyncio.sleep(0.08)
        self._entries.pop(old.owner.uid, None)
        self._give(new)
        if new.device:
            self.changed += 1
            self._write()
        if not late:
            self._announce("began", new)
        await asyncio.sleep(0.05)
        if late:
            self._report(new)
            self._announce("began, API server last", new)
            await asyncio.sleep(0.01)
        self._report(new, status={"phase": "Pending", "startTime": _stamp()})
        await asyncio.sleep(0.15)
        self._report(new, status=_running(new))
        self._pods[at] = new

    async def _end(self, pod: SimulatedPod) -> None:
        self._report(pod, metadata={"deletionTimestamp": _stamp()})
        await asyncio.sleep(0.2)
        del self._listed[pod.owner.uid]
        self.kubelet.pods = list(self._listed.values())
        if pod.device:
            self.holdings[pod.device][-1].until = time.monotonic()
        await asyncio.sleep(0.01)
        self._report(pod, status=_ended(pod))
        self._announce("ended", pod)
        await asyncio.sleep(0.04)
        self.reports += 1 if pod.device else 0
        self._api[PODS].delete(pod.owner.namespace, pod.owner.pod)

    def _settled(self, device: str) -> SimulatedPod:
        """Return a running pod."""
        pod = self._make(device)
        self._give(pod)
        self._report(pod, status=_running(pod))
        return pod

    def _make(self, device: str, name: str = "") -> SimulatedPod:
        number = next(self._numbers)
        owner = Owner("ml", name or f"job-{number}", "main", f"uid-{number}")
        resources = {"limits": {RESOURCE: "1"}} if device else {}
        raw = raw_pod(
            owner.pod,
            uid=owner.uid,
            labels={"team": f"team-{number % 7}", "app": "job"},
            metadata={"managedFields": [{"manager": "kubelet", "fieldsV1": _MANAGED}]},
            spec={"containers": [raw_container(env=_ENV, resources=resources)]},
            status={"phase": "Pending", "startTime": None, "containerStatuses": []},
        )
        return SimulatedPod(owner, device, raw)

    def _report(
        self,
        pod: SimulatedPod,
        *,
        status: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Report a pod from the API server with these changes."""
        raw = pod.raw
        pod.raw = {
            **raw,
            "metadata": raw["metadata"] | (metadata or {}),
            "status": raw["status"] | (status or {}),
        }
        self.reports += 1 if pod.device else 0
        self._api[PODS].put(pod.raw)

    def _give(self, pod: SimulatedPod) -> None:
        """List a pod in the kubelet with its device."""
        owner, device = pod.owner, pod.device
        held = {RESOURCE: [device]} if device else {}
        self._listed[owner.uid] = kubelet.pod(owner.pod, held, namespace=owner.namespace)
        self.kubelet.pods = list(self._listed.values())
        if device:
            self._entries[owner.uid] = checkpoints.entry(
                [device], checkpoints.visible(device), uid=owner.uid, resource=RESOURCE
            )
            self.holdings.setdefault(device, []).append(Holding(owner, time.monotonic()))

    def _write(self) -> None:
        self.reports += 1
        checkpoints.replace(self._checkpoint, checkpoints.checkpoint(*self._entries.values()))

    def _announce(self, kind: ChangeKind, pod: SimulatedPod) -> None:
        if pod.device:
            self.on_change(Change(time.monotonic(), kind, pod.device, pod.owner))


def _running(pod: SimulatedPod) -> dict[str, Any]:
    started = pod.raw["status"]["startTime"] or _stamp()
    statuses = _statuses(pod, "running", startedAt=_stamp())
    return {"phase": "Running", "startTime": started, "containerStatuses": statuses}


def _ended(pod: SimulatedPod) -> dict[str, Any]:
    now = _stamp()
    statuses = _statuses(pod, "terminated", exitCode=143, startedAt=now, finishedAt=now)
    return {"phase": "Failed", "containerStatuses": statuses}


def _statuses(pod: SimulatedPod, state: str, **times: object) -> list[dict[str, Any]]:
    container = f"containerd://{pod.owner.uid}"
    return [{"name": "main", "containerID": container, "state": {state: times}}]


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
