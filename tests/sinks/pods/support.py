"""A pods sink with its node, a kubelet that allocates devices, and an API server with pods."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pipeline.allocations.own_annotations import MARK
from pipeline.base.channels import Channel
from pipeline.base.errors import ApiError
from pipeline.kube.api_errors import response_error
from pipeline.kube.api_request import ApiRequest
from pipeline.model import (
    NS,
    Claim,
    Evidence,
    Instant,
    Pod,
    PodInfo,
    PodsReplaced,
    Snapshot,
    SourceAdded,
    SourceLost,
)
from sinks.pods.held_devices import PodRef
from sinks.pods.options import Options
from sinks.pods.sink import PodsSink
from tests.support.contexts import LoopClock
from tests.support.kube import Raw
from tests.support.nodes import START, Node, claims, gpu, kubelet_claim, mig, uuid_of
from tests.support.objects import SlowObjects
from tests.support.sinks import FakeSinkContext, supervised

GPUS = tuple(gpu(index) for index in range(4))
SLICE = mig(GPUS[3], 3)
KEY = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"


def path_of(name: str, namespace: str = "ml") -> str:
    return PodRef(namespace, name).path


def uuids(*indices: int) -> str:
    return ",".join(uuid_of(index) for index in indices)


def claim(pod: str, *gpus: int, container: str = "main", resource: str = KEY) -> Claim:
    """Return a claim of the kubelet. Index 3 is the MIG instance, all others are GPUs."""
    ids = (SLICE.uuid if index == 3 else uuid_of(index) for index in gpus)
    return kubelet_claim(pod, *ids, container=container, resource=resource)


def container(name: str = "main", **resources: object) -> Raw:
    """Return a container; `gpu=2` requests two of `nvidia.com/gpu`."""
    names = {"gpu": KEY, "mig": MIG}
    limits = {names.get(short, short): str(amount) for short, amount in resources.items()}
    return {"name": name, "resources": {"limits": limits, "requests": limits}}


def pod_of(
    name: str = "a",
    *containers: Raw,
    uid: str = "",
    annotations: dict[str, str] | None = None,
    metadata: Raw | None = None,
    node: str = "node-1",
    phase: str = "Running",
    init: tuple[Raw, ...] = (),
) -> Raw:
    """Return a pod of the API server. Without containers, it has one that requests four GPUs."""
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            **({"annotations": annotations} if annotations is not None else {}),
            **(metadata or {}),
        },
        "spec": {
            "nodeName": node,
            "containers": list(containers) or [container(gpu=4)],
            "initContainers": list(init),
        },
        "status": {"phase": phase, "startTime": "2026-11-01T08:00:00Z"},
    }


def reported_pod(name: str, uid: str = "", static: str = "") -> Pod:
    """Return a pod as a source of pods reports it."""
    started = Instant(0, START.wall_ns - 60 * NS)
    info = PodInfo(uid or f"uid-{name}", "ml", name, "Running")
    return Pod(info, started, static_uid=static, wants_devices=True)


def api_error(status: int) -> ApiError:
    return ApiError(f"the API server returned {status}", status=status, reason="Refused")


def webhook_denial(status: int = 403, message: str = "") -> ApiError:
    """Return the error of the API server for a request that a webhook denied."""
    message = message or 'admission webhook "validation.example.com" denied the request: no'
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message}).encode()
    request = ApiRequest("PATCH", path_of("a"), changes={})
    return response_error("api", request, status=status, headers={}, body=body, credentials="")


class Bench:
    """Three GPUs and a MIG instance, a kubelet, an API server and a sink."""

    def __init__(self, **options: Any) -> None:
        self.api = SlowObjects()
        self.ctx = FakeSinkContext("pods", clock=LoopClock())
        self.ctx.log.setLevel(logging.INFO)
        self.ctx.api = self.api
        self.options = Options(**options)
        self.sink = PodsSink(self.options, self.ctx)
        self.node = Node()
        self.node.has(*GPUS[:3], SLICE)
        self.inbox: Channel[Snapshot] = Channel(1)
        self.task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def run_sink(self) -> AsyncIterator["Bench"]:
        async with self.sink:
            self.task = asyncio.create_task(self.sink.run(self.inbox))
            try:
                yield self
            finally:
                inbox, self.inbox = self.inbox, Channel(1)
                inbox.close()
                async with asyncio.timeout(300):
                    await self.task

    @asynccontextmanager
    async def supervised(self) -> AsyncIterator["Bench"]:
        """Run the sink under the daemon's supervision until it has stopped."""
        async with supervised(self.sink, self.ctx, self.inbox):
            yield self

    def reload(self, **options: Any) -> None:
        """Replace the sink by one with other options."""
        self.sink = PodsSink(Options(**options), self.ctx)

    def add_pods(self, *pods: Raw) -> None:
        for raw in pods:
            self.api.put(path_of(raw["metadata"]["name"]), raw)

    def set_claims(self, *claims_made: Claim) -> None:
        """Let the kubelet report these claims; send a snapshot."""
        self.node.say(claims(*claims_made), "kubelet", "podresources")
        self.send_snapshot()

    def report_pods(self, *pods: Pod) -> None:
        self.node.say(PodsReplaced(pods, 300 * NS), "pods", "pods")

    def add_source(self, source: str, kind: str) -> None:
        self.node.say(SourceAdded(9), source, kind)

    def lose_source(self, source: str, kind: str) -> None:
        self.node.say(SourceLost("gone"), source, kind)

    def send_snapshot(self) -> None:
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    async def wait(self, seconds: float = 2) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(seconds)

    def annotations(self, name: str = "a") -> dict[str, str]:
        return self.api.annotations(path_of(name))

    def written(self, name: str = "a") -> dict[str, str]:
        """Return the annotations that podgpu's mark lists, after a check that the pod has them."""
        present = self.annotations(name)
        mark: dict[str, str] = json.loads(present.get(MARK, "{}"))
        assert {key: present.get(key) for key in mark} == mark
        return mark

    def requests(self) -> list[str]:
        """Return method and pod of each request."""
        return [f"{method} {path.rpartition('/')[2]}" for _, method, path, _ in self.api.requests]

    def request_counts(self) -> dict[str, float]:
        """Return the number of requests by method and result, such as `get ok`."""
        return self.ctx.counted("podgpu_sink_requests_total")

    @property
    def up(self) -> bool:
        return self.ctx.up == 1

    @property
    def failed(self) -> dict[str, float]:
        """Return the number of errors by operation and reason, such as `annotate foreign`."""
        return self.ctx.counted("podgpu_sink_errors_total")


def env_claim(pod: str, *gpus: int, evidence: Evidence = Evidence.RUNTIME_NODES) -> Claim:
    """Return a claim without a resource, as the container runtime makes it."""
    made = claim(pod, *gpus, resource="")
    return Claim(made.subject, made.devices, None, None, type(made.origin)(evidence), "")
