"""A node full of pods: kubelet, API server and checkpoint, which tell of one truth."""

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
# What a pod brings along that podgpu has no use for: with it, some eight kilobytes.
_MANAGED: Final[dict[str, Any]] = {
    f"f:{at}": {"f:value": {}, "f:name": {}, ".": {}} for at in range(80)
}
_ENV: Final = [{"name": f"SETTING_{at}", "value": "x" * 60} for at in range(40)]

What = Literal["ended", "began", "began, API server last"]


class Owner(NamedTuple):
    namespace: str
    pod: str
    container: str
    uid: str


@dataclass(slots=True)
class Reign:
    """An owner's time with a device, by the monotonic clock."""

    owner: Owner
    since: float
    until: float = float("inf")


class Change(NamedTuple):
    """What a page has to show from some moment on.

    Attributes:
        at: when the word came without which nobody could know.
        what: happened.
        device: MIG uuid.
        owner: who holds it, or no longer does.
    """

    at: float
    what: What
    device: str
    owner: Owner


@dataclass(slots=True)
class Tenant:
    """A pod; `device` is empty where it holds none."""

    owner: Owner
    device: str
    raw: dict[str, Any]


class Crowd:
    """The node's pods and who tells of them.

    Attributes:
        kubelet: the socket's other end.
        reigns: by device, everyone who ever held it.
        told: takes each change when it is told.
        changed: how many devices passed from a pod to another.
        words: how often something was said of a pod with a device.

    Args:
        folder: for sockets and files.
        devices: MIG uuids.
        pods: so many run; the first of them hold a device each.
    """

    def __init__(self, folder: Path, devices: list[str], pods: int) -> None:
        self.reigns: dict[str, list[Reign]] = {}
        self.given_out: Callable[[Change], None] = lambda _: None
        self.changed = 0
        self.words = 0
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
        self._namesake = cycle((False, False, True))
        self._tenants = [self._settled(device) for device in [*devices, *[""] * pods][:pods]]
        self._write()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[dict[str, dict[str, object]]]:
        """Yield the options of the sources that ask here, by kind."""
        server = ApiServer(self._api)
        async with self.kubelet, server.serving():
            server.kubeconfig(self._kubeconfig)
            yield {
                "podresources": {"sockets": [str(self.kubelet.path)]},
                "pods": {"kubeconfig": str(self._kubeconfig), "labels": ["team"]},
                "checkpoint": {"path": str(self._checkpoint)},
            }
            # Streams end that nobody reads any more.
            server.hang_up()
            for collection in self._api.values():
                collection.bookmark()

    async def churn(self, seconds: float, each: float, share: float) -> None:
        """Have pods end and others start in their place.

        Args:
            seconds: for how long.
            each: seconds from one such exchange to the next.
            share: of the exchanges in which a device changes hands.
        """
        held = cycle([at for at, tenant in enumerate(self._tenants) if tenant.device])
        idle = cycle([at for at, tenant in enumerate(self._tenants) if not tenant.device])
        begun, due = time.monotonic(), 0.5
        async with asyncio.TaskGroup() as group:
            for turn in range(round(seconds / each)):
                await asyncio.sleep(begun + turn * each - time.monotonic())
                due += share
                group.create_task(self._exchange(next(held if due >= 1 else idle)))
                due -= due >= 1

    async def _exchange(self, at: int) -> None:
        """Let a pod end and another start: of each three one by a pod of the same name, and one of
        which the API server tells late.
        """
        old = self._tenants[at]
        await self._end(old)
        new = self._make(old.device, old.owner.pod if next(self._namesake) else "")
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
        self._tenants[at] = new

    async def _end(self, tenant: Tenant) -> None:
        self._report(tenant, metadata={"deletionTimestamp": _stamp()})
        await asyncio.sleep(0.2)
        del self._listed[tenant.owner.uid]
        self.kubelet.pods = list(self._listed.values())
        if tenant.device:
            self.reigns[tenant.device][-1].until = time.monotonic()
        await asyncio.sleep(0.01)
        self._report(tenant, status=_over(tenant))
        self._announce("ended", tenant)
        await asyncio.sleep(0.04)
        self.words += 1 if tenant.device else 0
        self._api[PODS].delete(tenant.owner.namespace, tenant.owner.pod)

    def _settled(self, device: str) -> Tenant:
        """Return a pod that runs."""
        tenant = self._make(device)
        self._give(tenant)
        self._report(tenant, status=_running(tenant))
        return tenant

    def _make(self, device: str, name: str = "") -> Tenant:
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
        return Tenant(owner, device, raw)

    def _report(
        self,
        tenant: Tenant,
        *,
        status: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Have the API server tell of a pod, with that changed."""
        raw = tenant.raw
        tenant.raw = {
            **raw,
            "metadata": raw["metadata"] | (metadata or {}),
            "status": raw["status"] | (status or {}),
        }
        self.words += 1 if tenant.device else 0
        self._api[PODS].put(tenant.raw)

    def _give(self, tenant: Tenant) -> None:
        """Have the kubelet list a pod and give it its device."""
        owner, device = tenant.owner, tenant.device
        held = {RESOURCE: [device]} if device else {}
        self._listed[owner.uid] = kubelet.pod(owner.pod, held, namespace=owner.namespace)
        self.kubelet.pods = list(self._listed.values())
        if device:
            self._entries[owner.uid] = checkpoints.entry(
                [device], checkpoints.visible(device), uid=owner.uid, resource=RESOURCE
            )
            self.reigns.setdefault(device, []).append(Reign(owner, time.monotonic()))

    def _write(self) -> None:
        self.words += 1
        checkpoints.replace(self._checkpoint, checkpoints.checkpoint(*self._entries.values()))

    def _announce(self, what: What, tenant: Tenant) -> None:
        if tenant.device:
            self.given_out(Change(time.monotonic(), what, tenant.device, tenant.owner))


def _running(tenant: Tenant) -> dict[str, Any]:
    started = tenant.raw["status"]["startTime"] or _stamp()
    statuses = _statuses(tenant, "running", startedAt=_stamp())
    return {"phase": "Running", "startTime": started, "containerStatuses": statuses}


def _over(tenant: Tenant) -> dict[str, Any]:
    now = _stamp()
    statuses = _statuses(tenant, "terminated", exitCode=143, startedAt=now, finishedAt=now)
    return {"phase": "Failed", "containerStatuses": statuses}


def _statuses(tenant: Tenant, state: str, **given_out: object) -> list[dict[str, Any]]:
    container = f"containerd://{tenant.owner.uid}"
    return [{"name": "main", "containerID": container, "state": {state: given_out}}]


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
