"""Runs the source against sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from config.value_types import Duration
from pipeline.base.clock import Clock
from pipeline.model import Claim, ClaimsReplaced, ResourcesAdvertised, SourceLost
from sources.podresources.options import Options
from sources.podresources.source import PodResourcesSource
from tests.support.contexts import FakeSourceContext
from tests.support.running import running

SELDOM = Duration.parse("1h")


class Asking(FakeSourceContext):
    def claims(self) -> tuple[Claim, ...] | None:
        said = [event for event in self.events if isinstance(event, ClaimsReplaced)]
        return said[-1].claims if said else None

    def pods(self) -> list[str] | None:
        claims = self.claims()
        return None if claims is None else [claim.subject.pod for claim in claims]

    def advertised(self) -> dict[str, list[str]] | None:
        said = [event for event in self.events if isinstance(event, ResourcesAdvertised)]
        if not said:
            return None
        return {one.resource: [raw.text for raw in one.devices] for one in said[-1].resources}

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, SourceLost)]

    def requests(self) -> dict[tuple[str, str], float]:
        """How often each (method, result) was counted."""
        found = {}
        for family, points in self.telemetry.collect({}):
            if family.name == "podgpu_source_requests_total":
                for point in points:
                    labels = dict(point.labels)
                    found[labels["method"], labels["result"]] = point.value
        return found

    async def until(self, *pods: str, timeout: float = 5) -> None:
        await self.when(lambda: self.pods() == list(pods), timeout)

    async def when(self, happened: Callable[[], bool], timeout: float = 5) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(happened)

    async def lost(self, count: int = 1) -> str:
        await self.wait_for(SourceLost, count)
        return self.reasons()[-1]


@asynccontextmanager
async def asking(
    *sockets: Path, interval: Duration = SELDOM, clock: Clock | None = None, **options: Any
) -> AsyncIterator[Asking]:
    ctx = Asking("kubelet", clock)
    source = PodResourcesSource(Options(sockets=sockets, interval=interval, **options))
    async with running(source, ctx):
        yield ctx


async def eventually(happened: Callable[[], bool], timeout: float = 5) -> None:
    async with asyncio.timeout(timeout):
        while not happened():
            await asyncio.sleep(0.005)
