"""A source's context for tests: it keeps the emitted events, and passes on hints of the test."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from pipeline.base.clock import Clock, SystemClock
from pipeline.base.telemetry import Meter, Telemetry
from pipeline.component.accepted_annotations import AcceptedAnnotations
from pipeline.component.contracts import KubeApi
from pipeline.component.registry import OWN_FAMILIES
from pipeline.fields import FieldPlan
from pipeline.kube.sessions import Sessions
from pipeline.model import Envelope, Event, Hint, Instant

E = TypeVar("E")


class LoopClock:
    """The event loop's clock, which follows the virtual time of looptime."""

    def __init__(self, wall_start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._wall_start_ns = wall_start_ns

    def now(self) -> Instant:
        mono_ns = round(asyncio.get_running_loop().time() * 1e9)
        return Instant(mono_ns, self._wall_start_ns + mono_ns)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeSourceContext:
    """Implements `pipeline.component.contracts.SourceContext`."""

    def __init__(self, name: str = "under-test", clock: Clock | None = None) -> None:
        self.name = name
        self.node = "node-1"
        self.clock: Clock = clock or SystemClock()
        self.plan = FieldPlan()
        self.log = logging.getLogger(f"podgpu.test.{name}")
        self.telemetry = Telemetry(families=OWN_FAMILIES)
        self.meter = Meter(self.telemetry, "source", name)
        self.restart_state: dict[str, object] = {}
        self.accepted = AcceptedAnnotations()
        self.events: list[Event] = []
        self.relayed: list[Envelope] = []
        self.emitted_at: list[Instant] = []
        self._changed = asyncio.Condition()
        self._sessions = Sessions()
        self._hints: asyncio.Queue[Hint] = asyncio.Queue()

    async def emit(self, event: Event) -> None:
        self.events.append(event)
        self.emitted_at.append(self.clock.now())
        async with self._changed:
            self._changed.notify_all()

    async def relay(self, envelope: Envelope) -> None:
        self.relayed.append(envelope)
        async with self._changed:
            self._changed.notify_all()

    async def hints(self) -> AsyncIterator[Hint]:
        while True:
            yield await self._hints.get()

    def hint(self, *devices: str, pods: tuple[str, ...] = (), source: str = "another") -> None:
        self._hints.put_nowait(Hint(frozenset(devices), frozenset(pods), frozenset({source})))

    def kube(self, kubeconfig: Path | None) -> AbstractAsyncContextManager[KubeApi]:
        return self._sessions.session(kubeconfig)

    async def wait_for(self, kind: type[E], count: int = 1, timeout: float = 10) -> list[E]:
        """Wait until `count` events of a type were emitted; return all events of that type."""
        async with asyncio.timeout(timeout), self._changed:
            found: list[E] = []
            while len(found := [e for e in self.events if isinstance(e, kind)]) < count:
                await self._changed.wait()
        return found
