"""A node sink on virtual time, with the GPUs of its node and the Node that it annotates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from config.value_types import Duration
from pipeline.base.channels import Channel
from pipeline.model import ClaimsReplaced, Snapshot, SourceAdded, SourceLost
from pipeline.topology.node_annotation import KEY, Published, published
from sinks.node.options import Options
from sinks.node.sink import NodeSink
from tests.support.contexts import LoopClock
from tests.support.nodes import START, Node, claims, gpu, kubelet_claim, uuid_of
from tests.support.objects import SlowObjects
from tests.support.sinks import FakeSinkContext, supervised
from tests.support.topology import topology_read

PATH = "/api/v1/nodes/node-1"
GPUS = tuple(gpu(index) for index in range(4))
OVERWRITTEN = "podgpu_sink_errors_total"


class Bench:
    """Four GPUs, a kubelet that reports their holders, a sink and its supervisor."""

    def __init__(self, **options: Any) -> None:
        self.api = SlowObjects()
        self.api.put(PATH, {"kind": "Node", "metadata": {"annotations": {"theirs": "1"}}})
        self.ctx = FakeSinkContext("topology", clock=LoopClock(START.wall_ns))
        self.ctx.api = self.api
        self.node = Node()
        self.node.has(*GPUS)
        self.node.say(topology_read(*GPUS))
        self.inbox: Channel[Snapshot] = Channel(1)
        self.sink = self.make_sink(**options)

    def make_sink(self, **options: Any) -> NodeSink:
        """Return a sink with these options, as a reload makes it."""
        for name in ("min_interval", "refresh"):
            if name in options:
                options[name] = Duration.parse(options[name])
        return NodeSink(Options(**options), self.ctx)

    @asynccontextmanager
    async def running(self, sink: NodeSink | None = None) -> AsyncIterator["Bench"]:
        """Run the sink under the daemon's supervision until it has stopped."""
        self.inbox = Channel(1)
        async with supervised(sink or self.sink, self.ctx, self.inbox):
            yield self
        assert self.api.most <= 1, "two requests at once"

    # -- reports of the node

    def add_source(self, source: str) -> None:
        self.node.say(SourceAdded(9), source, "podresources")

    def lose_source(self, source: str) -> None:
        self.node.say(SourceLost("gone"), source, "podresources")

    def set_held(self, *indexes: int) -> None:
        """Let the kubelet report that pods hold these GPUs and no others; send a snapshot."""
        self.node.say(self.kubelet_claims(*indexes), "kubelet", "podresources")
        self.send_snapshot()

    def kubelet_claims(self, *indexes: int) -> ClaimsReplaced:
        kubelet = [kubelet_claim(f"pod-{index}", uuid_of(index)) for index in indexes]
        return claims(*kubelet, good_for=1e6)

    def send_snapshot(self) -> None:
        self.node.seconds = now()
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    # -- results

    def value(self, key: str = KEY) -> str | None:
        return self.api.annotations(PATH).get(key)

    def published(self) -> Published:
        value = self.value()
        assert value is not None
        return published(value)

    def patched_at(self) -> list[float]:
        return [round(at, 3) for at, _ in self.api.patches()]

    def distances(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.patched_at())]

    def overwritten(self) -> float:
        return self.ctx.counted(OVERWRITTEN)["overwritten foreign"]

    def methods(self) -> list[str]:
        return [method for _, method, _, _ in self.api.requests]


def now() -> float:
    return asyncio.get_running_loop().time()
