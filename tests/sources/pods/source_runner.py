"""Run the source with a fake API server, and collect what it reports."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from pipeline.base.errors import ApiError
from pipeline.component.contracts import KubeApi
from pipeline.model import Pod, PodDeleted, PodsReplaced, PodUpserted, SourceLost
from sources.pods.options import Options
from sources.pods.source import PodsSource
from tests.support.contexts import FakeSourceContext, LoopClock
from tests.support.kube import Collection, FakeApi

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class FakeCluster:
    """A `KubeApi` for a fake API server with several collections."""

    def __init__(self) -> None:
        self.pods = FakeApi(Collection())
        self.slices = FakeApi(Collection())
        self.paths: dict[str, FakeApi | ApiError] = {PODS: self.pods, SLICES: self.slices}
        self.requested: list[str] = []

    def _at(self, path: str) -> FakeApi:
        self.requested.append(path)
        found = self.paths.get(path, ApiError("404 NotFound", status=404))
        if isinstance(found, ApiError):
            raise found
        return found

    async def get(self, path: str, query: Any) -> bytes:
        return await self._at(path).get(path, query)

    async def patch(self, path: str, changes: Any) -> bytes:
        raise AssertionError(f"{path} is changed")

    async def create(self, path: str, body: Any) -> bytes:
        raise AssertionError(f"something is created in {path}")

    @asynccontextmanager
    async def watch(
        self, path: str, query: Any, *, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._at(path).watch(path, query, silence=silence) as lines:
            yield lines


class FollowerContext(FakeSourceContext):
    """A context with sessions to a fake cluster; it keeps a copy of the pods, as the join does."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__("pods", LoopClock())
        self.cluster = cluster
        self.kubeconfigs: list[Path | None] = []

    def kube(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        self.kubeconfigs.append(kubeconfig)
        return nullcontext(self.cluster)

    def pods(self) -> dict[str, Pod]:
        """Return the pods that result from all events, by UID."""
        pods: dict[str, Pod] = {}
        for event in self.events:
            match event:
                case PodsReplaced(found, _):
                    pods = {pod.info.uid: pod for pod in found}
                    assert len(pods) == len(found)
                case PodUpserted(pod):
                    pods[pod.info.uid] = pod
                case PodDeleted(uid):
                    del pods[uid]
                case _:
                    pass
        return pods

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, SourceLost)]

    def levels(self, caplog: Any) -> list[str]:
        return [r.levelname for r in caplog.records if r.name == self.log.name]


@asynccontextmanager
async def following(
    cluster: FakeCluster, ctx: FollowerContext | None = None, **options: Any
) -> AsyncIterator[FollowerContext]:
    ctx = ctx or FollowerContext(cluster)
    ctx.log.setLevel(logging.INFO)
    options = {"resource_slices": False} | options
    task = asyncio.create_task(PodsSource(Options(**options)).run(ctx))
    try:
        yield ctx
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
