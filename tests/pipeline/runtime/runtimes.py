"""Fixtures: a runtime with test components."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from config.schema import Config
from pipeline.component.contracts import SourceContext
from pipeline.model import DevicesDiscovered, Snapshot
from pipeline.runtime.runtime import Runtime
from tests.support.components import KeepingSink, Registered, never
from tests.support.contexts import LoopClock
from tests.support.nodes import claim, claims, gpu, uuid_of

GPUS = (gpu(0), gpu(1))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registered]:
    registered = Registered()
    registered.sinks["keep"] = KeepingSink()
    registered.sinks["other"] = KeepingSink()
    with registered.installed(monkeypatch):
        yield registered


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Runtime]:
    stop = asyncio.Event()
    runtime = Runtime(config, clock=LoopClock())
    task = asyncio.create_task(runtime.run(stop))
    try:
        await asyncio.sleep(0.5)
        yield runtime
    finally:
        stop.set()
        await task


def keeper(registered: Registered, kind: str = "keep") -> KeepingSink:
    sink = registered.sinks[kind]
    assert isinstance(sink, KeepingSink)
    return sink


def pods(snapshot: Snapshot) -> list[str]:
    found = snapshot.layout.attributions.values()
    return [holder.subject.pod for known in found for holder in known.holders]


async def gpus(ctx: SourceContext) -> None:
    await ctx.emit(DevicesDiscovered(GPUS))
    await never()


def holding(pod: str, forever: bool = True):  # type: ignore[no-untyped-def]
    async def run(ctx: SourceContext) -> None:
        await ctx.emit(claims(claim(pod, uuid_of(0))))
        if forever:
            await never()

    return run
