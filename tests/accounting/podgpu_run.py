"""One run of podgpu, with sources that a test controls, and its machine."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.schema import Component, Config
from config.value_types import Duration
from pipeline.base.errors import TransientError
from pipeline.component.contracts import SourceContext
from pipeline.model import (
    NS,
    Event,
    Instant,
    Snapshot,
)
from pipeline.runtime.runtime import Runtime
from sinks.ledger.options import Options as LedgerOptions
from tests.accounting.virtual_loop import VirtualLoop
from tests.support.components import Options

SOURCES: Final = {
    "gpus": "nvml",
    "runtime": "nri",
    "kubelet": "podresources",
    "file": "podlist",
    "pods": "pods",
    "other": "hostengine",
    "kernel": "kernel",
}


COMMIT_INCREASE: Final = NS // 10
"""By how much a reload of the ledger makes its commit interval longer."""


@dataclass
class Machine:
    """Clocks and files that remain when podgpu ends."""

    folder: Path
    loop: VirtualLoop
    offset: int
    """What the wall clock shows at time 0 of the loop."""
    boots: int = 0
    booted: int = 0
    runs: int = 0

    def now(self) -> Instant:
        now = self.loop.now_ns
        return Instant(now - self.booted + 1000 * NS, now + self.offset)

    def elapsed_at(self, moment: Instant) -> int:
        """Return the loop's time at a time of this boot."""
        return moment.mono_ns - 1000 * NS + self.booted

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def boot(self) -> str:
        """Return the id of this boot."""
        return f"boot-{self.boots}"

    @property
    def path(self) -> Path:
        return self.folder / str(self.runs) / "usage.db"


class Podgpu:
    """One run of podgpu."""

    def __init__(self, machine: Machine, commit: int, sources: tuple[str, ...]) -> None:
        self.machine = machine
        self.contexts: dict[str, SourceContext] = {}
        self._failures: dict[str, asyncio.Future[None]] = {}
        self._commit = commit
        self._options = dict.fromkeys(sources, 0)
        self._stop = asyncio.Event()
        self.runtime = Runtime(self._config(), clock=machine)
        self._task = asyncio.get_running_loop().create_task(self.runtime.run(self._stop))

    def _config(self) -> Config:
        ledger = LedgerOptions(
            path=self.machine.path,
            commit_interval=Duration(self._commit / NS),
            keep=Duration(0),  # clocks are set to 2039
        )
        return Config(
            node="node-1",
            sources={
                name: Component(
                    role="source", name=name, kind=kind, options=Options(self._options[name])
                )
                for name, kind in SOURCES.items()
                if name in self._options
            },
            sinks={"usage": Component(role="sink", name="usage", kind="ledger", options=ledger)},
        )

    async def started(self) -> None:
        while len(self.contexts) < len(self._options):
            await asyncio.sleep(0)
            if self._task.done():
                self._task.result()

    async def run_source(self, ctx: SourceContext) -> None:
        name = ctx.name
        self.contexts[name] = ctx
        failure = self._failures[name] = asyncio.get_running_loop().create_future()
        await failure

    async def emit(self, source: str, event: Event) -> None:
        if source not in self._options:
            return
        await self.contexts[source].emit(event)
        await self.settle()

    async def settle(self) -> None:
        """Let the event loop run until the ledger has all events."""
        for _ in range(8):
            await asyncio.sleep(0)
        if self._task.done():
            self._task.result()

    async def fail(self, source: str) -> None:
        failure = self._failures[source]
        if not failure.done():  # otherwise it hasn't been restarted since it failed
            failure.set_exception(TransientError("away"))
        await self.settle()

    async def reload(self, what: str) -> None:
        if what == "usage":
            self._commit += COMMIT_INCREASE
        else:
            self._options[what] += 1
            del self.contexts[what]
        assert await self.runtime.reload(self._config())
        await self.started()

    async def stop(self) -> None:
        self._stop.set()
        await self._task

    @property
    def snapshot(self) -> Snapshot:
        latest = self.runtime._publisher.latest
        assert latest is not None
        return latest
