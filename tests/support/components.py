"""Sources and sinks with scripted behaviour, and a registry that has them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import msgspec
import pytest

from config.schema import Component, Config
from pipeline.component import registry
from pipeline.component.contracts import (
    Delivery,
    Sink,
    SinkContext,
    SinkInbox,
    Source,
    SourceContext,
)
from pipeline.component.kind import Kind
from pipeline.model import Snapshot
from pipeline.runtime import sink_set, source_set

RunSource = Callable[[SourceContext], Awaitable[None]]


class Options(msgspec.Struct, frozen=True):
    """Options of a scripted component; a different `value` makes a different component."""

    value: int = 0


class ScriptedSource:
    """A source whose `run` is a function that the test supplies."""

    def __init__(self, run: RunSource) -> None:
        self._run = run

    async def run(self, ctx: SourceContext) -> None:
        await self._run(ctx)


class KeepingSink:
    """A sink that keeps every snapshot, and fails on request.

    Attributes:
        entered: how often it was entered, and `left` how often it was left.
        failures: exceptions to raise on the next entries, the last one first; None for success.
        gate: while it is clear, no snapshot is kept; while `door` is clear, no entry succeeds.
    """

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.entered = 0
        self.left = 0
        self.failures: list[Exception | None] = []
        self.run_failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.door = asyncio.Event()
        self.door.set()

    async def __aenter__(self) -> Self:
        await self.door.wait()
        if self.failures and (failure := self.failures.pop()) is not None:
            raise failure
        self.entered += 1
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.left += 1

    async def run(self, inbox: SinkInbox) -> None:
        if self.run_failures:
            raise self.run_failures.pop()
        async for snapshot in inbox:
            await self.gate.wait()
            self.snapshots.append(snapshot)


class Registered:
    """Makes `Runtime` build the components of the test.

    Attributes:
        sources: the functions to run, by kind; `sinks` has the sinks by kind.
    """

    def __init__(self) -> None:
        self.sources: dict[str, RunSource] = {}
        self.sinks: dict[str, Sink] = {}

    def build_source(self, kind: str, options: msgspec.Struct) -> Source:
        return ScriptedSource(self.sources[kind])

    def build_sink(self, kind: str, options: msgspec.Struct, ctx: SinkContext) -> Sink:
        return self.sinks[kind]

    @contextmanager
    def installed(
        self, monkeypatch: pytest.MonkeyPatch, delivery: Delivery = Delivery.QUEUE
    ) -> Iterator[Self]:
        monkeypatch.setattr(source_set, "build_source", self.build_source)
        monkeypatch.setattr(sink_set, "build_sink", self.build_sink)
        for kind in self.sinks:
            monkeypatch.setitem(registry.KINDS, ("sink", kind), Kind("", "", "", delivery))
        yield self


def configured(
    sources: dict[str, tuple[str, int]], sinks: dict[str, tuple[str, int]], node: str = "node-1"
) -> Config:
    """Return a configuration from (kind, options value) by name."""
    return Config(
        node=node,
        sources={
            name: Component(role="source", name=name, kind=kind, options=Options(value))
            for name, (kind, value) in sources.items()
        },
        sinks={
            name: Component(role="sink", name=name, kind=kind, options=Options(value))
            for name, (kind, value) in sinks.items()
        },
    )


async def never() -> None:
    """Wait forever."""
    await asyncio.Event().wait()


async def each(items: list[Snapshot]) -> AsyncIterator[Snapshot]:
    """Yield the items, as an inbox that ends after them."""
    for item in items:
        yield item
