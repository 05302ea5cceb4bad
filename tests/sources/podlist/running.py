"""Run the source on a real file, with the real inotify."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from config.value_types import Duration
from pipeline.model import ClaimsReplaced, SourceLost
from sources.podlist.options import Options
from sources.podlist.source import PodListSource
from tests.support.contexts import FakeSourceContext
from tests.support.running import running

# So long that no test sees a poll, unless it sets an interval.
RARELY = Duration.parse("1h")


def entry(pod: str, *devices: str) -> str:
    ids = ", ".join(f'"{device}"' for device in devices)
    return f'{{"name": "{pod}", "namespace": "ns", "container": "main", "gpu_list": [{ids}]}}'


def listing(*pods: str) -> str:
    return "[" + ",\n ".join(entry(pod, f"GPU-{pod}") for pod in pods) + "]"


def replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


class Following(FakeSourceContext):
    """A context that shows the source's last claims and the reasons of its losses."""

    def pods(self) -> list[str] | None:
        claims = [event for event in self.events if isinstance(event, ClaimsReplaced)]
        return [claim.subject.pod for claim in claims[-1].claims] if claims else None

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, SourceLost)]

    async def wait_for_pods(self, *pods: str, timeout: float = 5) -> None:
        async with asyncio.timeout(timeout), self._changed:
            while self.pods() != list(pods):
                await self._changed.wait()

    async def wait_for_loss(self, count: int = 1) -> str:
        await self.wait_for(SourceLost, count)
        return self.reasons()[-1]


@asynccontextmanager
async def following(
    path: Path, interval: Duration = RARELY, **options: Any
) -> AsyncIterator[Following]:
    ctx = Following("pods")
    source = PodListSource(Options(path=path, interval=interval, **options))
    async with running(source, ctx):
        yield ctx
