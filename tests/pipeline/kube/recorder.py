"""Run a reflector on a collection, and record what it reports."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pipeline.base.errors import ApiError
from pipeline.kube.json_access import as_dict, as_text
from pipeline.kube.reflector import Reflector
from tests.support.contexts import LoopClock
from tests.support.kube import FakeApi

Named = tuple[str, str]


def named(raw: object) -> Named | None:
    metadata = as_dict(as_dict(raw).get("metadata"))
    name = as_text(metadata.get("name"))
    return (name, as_text(metadata.get("uid"))) if name else None


class Recorder:
    """A `Handler` that records its calls, and the copy of the collection that results from them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lost_at: list[tuple[float, ApiError]] = []
        self.copy: dict[str, str] = {}
        self.confirmations = 0

    async def replaced(self, objects: Sequence[Named]) -> None:
        self.calls.append("replaced")
        self.copy = dict(objects)

    async def upserted(self, found: Named) -> None:
        self.calls.append(f"+{found[0]}")
        self.copy[found[0]] = found[1]

    async def deleted(self, found: Named) -> None:
        self.calls.append(f"-{found[0]}")
        if self.copy.get(found[0]) == found[1]:
            del self.copy[found[0]]

    async def confirmed(self) -> None:
        self.confirmations += 1

    async def watch_failed(self, error: ApiError) -> None:
        self.lost_at.append((asyncio.get_running_loop().time(), error))

    def reasons(self) -> list[str]:
        return [str(error) for _, error in self.lost_at]


@asynccontextmanager
async def reflecting(api: FakeApi, seed: int = 1) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    reflector = Reflector(
        api,
        "/api/v1/pods",
        {"fieldSelector": "spec.nodeName=node-1"},
        named,
        recorder,
        clock=LoopClock(),
        rng=random.Random(seed),
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield recorder
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
