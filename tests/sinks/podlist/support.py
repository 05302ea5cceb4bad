"""A sink under test, who holds what on its node, and the file that comes of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pipeline.base.channels import Channel
from pipeline.model import Claim, Instant, Snapshot, SourceAdded, SourceLost
from sinks.podlist.options import Options
from sinks.podlist.sink import PodListSink
from tests.support.nodes import START, Node, claims, gpu, kubelet_claim, mig, uuid_of
from tests.support.sinks import FakeSinkContext

GPUS = (gpu(0), gpu(1, minor=5), gpu(2))
SLICE = mig(GPUS[2], 3)

# Others' writers: one that knows more than we do, and one that writes by hand.
FOREIGN = (
    '{"namespace": "ml", "name": "theirs",  "container": "main",\n   '
    '"gpu_list": ["GPU-1"], "writer": "koordlet", "qos": {"class": "LS"}}'
)
OURS_OF_BEFORE = (
    '{"name":"gone","namespace":"ml","container":"main","gpu_list":["GPU-9"],"writer":"podgpu"}'
)


class HurryingClock:
    """Goes on by itself, and further when the test says so."""

    def __init__(self) -> None:
        self.seconds = -time.monotonic()

    def now(self) -> Instant:
        ns = round((time.monotonic() + self.seconds) * 1e9)
        return Instant(START.mono_ns + ns, START.wall_ns + ns)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Bench:
    """Three GPUs and a MIG instance, a kubelet that says who has them, a real sink."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.clock = HurryingClock()
        self.ctx = FakeSinkContext(clock=self.clock)
        self.sink = PodListSink(Options(path=path, **options), self.ctx)
        self.node = Node()
        self.node.has(*GPUS, SLICE)
        self.inbox: Channel[Snapshot] = Channel(1)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator["Bench"]:
        async with self.sink:
            running = asyncio.create_task(self.sink.run(self.inbox))
            yield self
            self.inbox.close()
            async with asyncio.timeout(10):
                await running

    def waits_for(self, source: str, kind: str) -> None:
        self.node.say(SourceAdded(9), source, kind)

    def loses(self, source: str, kind: str) -> None:
        self.node.say(SourceLost("gone"), source, kind)

    def holds(self, *said: Claim) -> None:
        """Let the kubelet say this, and show it."""
        self.node.say(claims(*said), "kubelet", "podresources")
        self.show()

    def show(self) -> None:
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    async def reads(self, *expected: str) -> None:
        """Wait until our entries are `pod=device,device` of these, and the sink rests."""
        await until(lambda: ours(self.path) == sorted(expected) and self.idle)

    @property
    def idle(self) -> bool:
        """Whether the sink has nothing to do before its next look."""
        return self.sink._due_ns > self.clock.now().mono_ns

    async def rests(self) -> None:
        """Give the sink time to do what it should not."""
        await asyncio.sleep(0.15)


async def until(holds: Callable[[], bool], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.002)


def held(pod: str, *gpus: int, container: str = "main") -> Claim:
    return kubelet_claim(pod, *(uuid_of(index) for index in gpus), container=container)


def short(*gpus: int) -> str:
    return ",".join(uuid_of(index) for index in gpus)


def state(path: Path) -> tuple[int, ...]:
    """All that a writer changes of a file: a reader changes when it was last read."""
    now = path.stat()
    return (now.st_ino, now.st_mode, now.st_uid, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


def names(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir())


def entries(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_bytes())
    assert isinstance(found, list)
    return found


def ours(path: Path) -> list[str] | None:
    """Our entries; None while there is no list."""
    try:
        found = entries(path)
    except (FileNotFoundError, ValueError):
        return None
    mine = [entry for entry in found if entry.get("writer") == "podgpu"]
    return sorted(f"{entry['name']}={','.join(entry['gpu_list'])}" for entry in mine)


def listing(*entries: str) -> str:
    return "[" + ",\n\n".join(entries) + "]"
