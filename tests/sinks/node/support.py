"""A sink under test, its node, and the Node that it annotates; on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from config.types import Duration
from pipeline.channels import Channel
from pipeline.contexts import RunningSink
from pipeline.errors import ApiError
from pipeline.model import ClaimsReplaced, Snapshot, SourceAdded, SourceLost
from pipeline.supervision import SinkRunner
from pipeline.topology.annotation import KEY, Published, published
from sinks.node.options import Options
from sinks.node.sink import NodeSink
from tests.support.contexts import LoopClock
from tests.support.joints import joints
from tests.support.nodes import START, Node, claims, gpu, kubelet_claim, uuid_of
from tests.support.objects import FakeObjects
from tests.support.sinks import FakeSinkContext

PATH = "/api/v1/nodes/node-1"
GPUS = tuple(gpu(index) for index in range(4))
OVERWRITTEN = "podgpu_sink_errors_total"


class Objects(FakeObjects):
    """An API server that takes its time, and may lose an answer.

    Attributes:
        takes: seconds to each answer.
        lost: so many answers to patches get lost, though they were made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes = 0.0
        self.lost = 0
        self._busy = False

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        async with self._alone():
            return await super().get(path, query)

    async def patch(self, path: str, changes: Mapping[str, object]) -> bytes:
        async with self._alone():
            answer = await super().patch(path, changes)
        if self.lost:
            self.lost -= 1
            raise ApiError("connection lost")
        return answer

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        assert not self._busy, "two requests at once"
        self._busy = True
        try:
            yield
            await asyncio.sleep(self.takes)
        finally:
            self._busy = False

    def methods(self) -> list[str]:
        return [method for _, method, _, _ in self.requests]


class Bench:
    """Four GPUs, a kubelet that says who has them, a sink, and who supervises it."""

    def __init__(self, **options: Any) -> None:
        self.api = Objects()
        self.api.put(PATH, {"kind": "Node", "metadata": {"annotations": {"theirs": "1"}}})
        self.ctx = FakeSinkContext("topology", clock=LoopClock(START.wall_ns))
        self.ctx.api = self.api
        self.node = Node()
        self.node.has(*GPUS)
        self.node.say(joints(*GPUS))
        self.inbox: Channel[Snapshot] = Channel(1)
        self.sink = self.made(**options)

    def made(self, **options: Any) -> NodeSink:
        """Make a sink of these options, as a reload does."""
        for name in ("min_interval", "refresh"):
            if name in options:
                options[name] = Duration.parse(options[name])
        return NodeSink(Options(**options), self.ctx)

    @asynccontextmanager
    async def running(self, sink: NodeSink | None = None) -> AsyncIterator["Bench"]:
        """Run the sink under the daemon's own supervision, from now until it has stopped."""
        self.inbox = Channel(1)
        context = RunningSink(
            name=self.ctx.name,
            node=self.ctx.node,
            clock=self.ctx.clock,
            plan=self.ctx.plan,
            log=self.ctx.log,
            meter=self.ctx.meter,
            snapshot=self.ctx.latest,
            collect=list,
            listen=self.ctx.http,
            connect=self.ctx.kube,
        )
        runner = SinkRunner(sink or self.sink, context, self.inbox)
        await runner.enter()
        task = asyncio.create_task(runner.run())
        try:
            yield self
        finally:
            if task.done():
                task.result()
            self.inbox.close()
            async with asyncio.timeout(10):
                await task

    # -- what the node says

    def waits_for(self, source: str) -> None:
        self.node.say(SourceAdded(9), source, "podresources")

    def loses(self, source: str) -> None:
        self.node.say(SourceLost("gone"), source, "podresources")

    def holds(self, *indexes: int) -> None:
        """Let the kubelet say that pods hold these GPUs and no others, and show it."""
        self.node.say(self.said_by_kubelet(*indexes), "kubelet", "podresources")
        self.show()

    def said_by_kubelet(self, *indexes: int) -> ClaimsReplaced:
        said = [kubelet_claim(f"pod-{index}", uuid_of(index)) for index in indexes]
        return claims(*said, good_for=1e6)

    def show(self) -> None:
        self.node.seconds = now()
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    # -- what came of it

    def value(self, key: str = KEY) -> str | None:
        return self.api.annotations(PATH).get(key)

    def said(self) -> Published:
        value = self.value()
        assert value is not None
        return published(value)

    def patched_at(self) -> list[float]:
        return [round(at, 3) for at, _ in self.api.patches()]

    def distances(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.patched_at())]

    def counted(self, family: str) -> dict[str, float]:
        """Return a counter's values by its labels but the sink's: `get ok`."""
        return {
            " ".join(value for name, value in point.labels if name != "sink"): point.value
            for found, points in self.ctx.own.collect({})
            if found.name == family
            for point in points
        }

    def overwritten(self) -> float:
        return self.counted(OVERWRITTEN)["overwritten foreign"]

    def up(self) -> float:
        return self.counted("podgpu_sink_up")[""]


def now() -> float:
    return asyncio.get_running_loop().time()
