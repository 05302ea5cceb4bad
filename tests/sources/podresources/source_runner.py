"""Run the source with kubelet sockets, and collect what it reports."""

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

ONE_HOUR = Duration.parse("1h")


class KubeletContext(FakeSourceContext):
    def claims(self) -> tuple[Claim, ...] | None:
        reports = [event for event in self.events if isinstance(event, ClaimsReplaced)]
        return reports[-1].claims if reports else None

    def pods(self) -> list[str] | None:
        claims = self.claims()
        return None if claims is None else [claim.subject.pod for claim in claims]

    def advertised(self) -> dict[str, list[str]] | None:
        reports = [event for event in self.events if isinstance(event, ResourcesAdvertised)]
        if not reports:
            return None
        return {one.resource: [raw.text for raw in one.devices] for one in reports[-1].resources}

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, SourceLost)]

    def requests(self) -> dict[tuple[str, str], float]:
        """Return how often each (method, result) was counted."""
        found = {}
        for family, points in self.telemetry.collect({}):
            if family.name == "podgpu_source_requests_total":
                for point in points:
                    labels = dict(point.labels)
                    found[labels["method"], labels["result"]] = point.value
        return found

    async def until(self, *pods: str, timeout: float = 5) -> None:
        await self.when(lambda: self.pods() == list(pods), timeout)

    async def when(self, condition: Callable[[], bool], timeout: float = 5) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(condition)

    async def lost(self, count: int = 1) -> str:
        await self.wait_for(SourceLost, count)
        return self.reasons()[-1]


@asynccontextmanager
async def running_source(
    *sockets: Path, interval: Duration = ONE_HOUR, clock: Clock | None = None, **options: Any
) -> AsyncIterator[KubeletContext]:
    ctx = KubeletContext("kubelet", clock)
    source = PodResourcesSource(Options(sockets=sockets, interval=interval, **options))
    async with running(source, ctx):
        yield ctx


async def eventually(condition: Callable[[], bool], timeout: float = 5) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)
