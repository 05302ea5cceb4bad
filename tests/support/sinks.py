"""A sink's context for tests: the test supplies its data, and the listeners are real."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from config.value_types import ListenAddress
from pipeline.base.channels import Channel
from pipeline.base.clock import Clock, SystemClock
from pipeline.base.errors import TransientError
from pipeline.base.telemetry import FamilyPoints, Meter, Point, Telemetry
from pipeline.component.contracts import HttpMounts, KubeApi, Sink
from pipeline.component.registry import OWN_FAMILIES
from pipeline.fields import FieldPlan
from pipeline.http.listener_registry import ListenerRegistry
from pipeline.model import Snapshot
from pipeline.runtime.supervision import SinkRunner


class FakeSinkContext:
    """Implements `pipeline.component.contracts.SinkContext`.

    Attributes:
        snapshot: the snapshot that `latest()` returns.
        own: the telemetry that `meter` writes to.
        computed: points for `telemetry()` that the runtime would compute.
        listeners: the listeners that `http()` uses.
        api: the API that `kube()` yields; None for no credentials.
        asked: the kubeconfigs with which `kube()` was called.
    """

    def __init__(
        self,
        name: str = "under-test",
        *,
        node: str = "node-1",
        clock: Clock | None = None,
        plan: FieldPlan | None = None,
        listeners: ListenerRegistry | None = None,
    ) -> None:
        self.name = name
        self.node = node
        self.clock: Clock = clock or SystemClock()
        self.plan = plan or FieldPlan.everything()
        self.log = logging.getLogger(f"podgpu.test.{name}")
        self.own = Telemetry(families=OWN_FAMILIES)
        self.meter = Meter(self.own, "sink", name)
        self.restart_state: dict[str, object] = {}
        self.snapshot: Snapshot | None = None
        self.computed: dict[str, list[Point]] = {}
        self.listeners = listeners or ListenerRegistry(
            node=node, version="0", health=lambda: (True, "ok"), ready=lambda: (True, "ok")
        )

        self.api: KubeApi | None = None
        self.asked: list[Path | None] = []

    def latest(self) -> Snapshot | None:
        return self.snapshot

    def telemetry(self) -> list[FamilyPoints]:
        return self.own.collect(self.computed)

    def http(self, address: ListenAddress) -> AbstractAsyncContextManager[HttpMounts]:
        return self.listeners.listen(address)

    @asynccontextmanager
    async def kube(self, kubeconfig: Path | None) -> AsyncIterator[KubeApi]:
        self.asked.append(kubeconfig)
        if self.api is None:
            raise TransientError("no credentials for the API server")
        yield self.api

    def counted(self, family: str) -> dict[str, float]:
        """Return the values of a family by its labels except `sink`, such as `get ok`."""
        return {
            " ".join(value for name, value in point.labels if name != "sink"): point.value
            for found, points in self.own.collect({})
            if found.name == family
            for point in points
        }

    @property
    def up(self) -> float:
        return self.counted("podgpu_sink_up")[""]


@asynccontextmanager
async def supervised(
    sink: Sink, ctx: FakeSinkContext, inbox: Channel[Snapshot]
) -> AsyncIterator[None]:
    """Run a sink under the supervision of the runtime, until the end of the `with` block."""
    runner = SinkRunner(sink, ctx, inbox)
    await runner.enter()
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        if task.done():
            task.result()
        inbox.close()
        async with asyncio.timeout(10):
            await task
