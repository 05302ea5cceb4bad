"""A sink under test, the holders on its node, and the file that it writes."""

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

# Entries of two writers: another program with keys that podgpu does not know, and podgpu.
OTHER_ENTRY = (
    '{"namespace": "ml", "name": "theirs",  "container": "main",\n   '
    '"gpu_list": ["GPU-1"], "writer": "koordlet", "qos": {"class": "LS"}}'
)
OLD_OWN_ENTRY = (
    '{"name":"gone","namespace":"ml","container":"main","gpu_list":["GPU-9"],"writer":"podgpu"}'
)


class HurryingClock:
    """The real time, which a test can advance."""

    def __init__(self) -> None:
        self.seconds = -time.monotonic()

    def now(self) -> Instant:
        ns = round((time.monotonic() + self.seconds) * 1e9)
        return Instant(START.mono_ns + ns, START.wall_ns + ns)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Bench:
    """Three GPUs and a MIG instance, a kubelet that reports their holders, and a real sink."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.clock = HurryingClock()
        self.ctx = FakeSinkContext(clock=self.clock)
        self.sink = PodListSink(Options(path=path, **options), self.ctx)
        self.node = Node()
        self.node.has(*GPUS, SLICE)
        self.inbox: Channel[Snapshot] = Channel(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Bench"]:
        async with self.sink:
            task = asyncio.create_task(self.sink.run(self.inbox))
            yield self
            self.inbox.close()
            async with asyncio.timeout(10):
                await task

    def add_source(self, source: str, kind: str) -> None:
        self.node.say(SourceAdded(9), source, kind)

    def lose_source(self, source: str, kind: str) -> None:
        self.node.say(SourceLost("gone"), source, kind)

    def set_holders(self, *reported: Claim) -> None:
        """Let the kubelet report these claims, and send a snapshot."""
        self.node.say(claims(*reported), "kubelet", "podresources")
        self.show()

    def show(self) -> None:
        self.ctx.snapshot = self.node.snapshot()
        self.inbox.offer(self.ctx.snapshot)

    async def wait_for_entries(self, *expected: str) -> None:
        """Wait until podgpu's entries are these (`pod=device,device`), and the sink is idle."""
        await until(lambda: podgpu_entries(self.path) == sorted(expected) and self.idle)

    @property
    def idle(self) -> bool:
        """Whether the sink has nothing to do before its next check."""
        return self.sink._due_ns > self.clock.now().mono_ns

    async def settle(self) -> None:
        """Wait long enough for a write that should not happen."""
        await asyncio.sleep(0.15)


async def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def held(pod: str, *gpus: int, container: str = "main") -> Claim:
    return kubelet_claim(pod, *(uuid_of(index) for index in gpus), container=container)


def uuids(*gpus: int) -> str:
    return ",".join(uuid_of(index) for index in gpus)


def file_state(path: Path) -> tuple[int, ...]:
    """Return what a writer changes of a file; without the access time, which readers change."""
    now = path.stat()
    return (now.st_ino, now.st_mode, now.st_uid, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


def names(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir())


def entries(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_bytes())
    assert isinstance(found, list)
    return found


def podgpu_entries(path: Path) -> list[str] | None:
    """Return podgpu's entries as `pod=device,device`; None while there is no valid list."""
    try:
        found = entries(path)
    except (FileNotFoundError, ValueError):
        return None
    own = [entry for entry in found if entry.get("writer") == "podgpu"]
    return sorted(f"{entry['name']}={','.join(entry['gpu_list'])}" for entry in own)


def listing(*entries: str) -> str:
    return "[" + ",\n\n".join(entries) + "]"
