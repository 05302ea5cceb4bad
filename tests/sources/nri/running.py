"""Runs the source against a runtime."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from pipeline.base.errors import TransientError
from pipeline.model import (
    ContainersReplaced,
    ContainerStarted,
    ContainerStopped,
    RunningContainer,
)
from sources.nri.options import Options
from sources.nri.source import NriSource
from tests.support.contexts import FakeSourceContext

P = ParamSpec("P")
T = TypeVar("T")


class Following(FakeSourceContext):
    """Knows what the join would know, and why each run ended."""

    def __init__(self) -> None:
        super().__init__("runtime")
        self.failures: list[TransientError] = []

    def running(self) -> dict[str, RunningContainer]:
        found: dict[str, RunningContainer] = {}
        for event in self.events:
            match event:
                case ContainersReplaced(containers):
                    found = {one.subject.container_id: one for one in containers}
                case ContainerStarted(container):
                    found[container.subject.container_id] = container
                case ContainerStopped(container_id):
                    found.pop(container_id, None)
                case _:
                    pass
        return found

    def devices(self) -> dict[str, list[str]]:
        """By container id the texts of the ids that it was given."""
        return {
            key: [device.text for claim in one.claims for device in claim.devices]
            for key, one in self.running().items()
        }

    async def until(self, *ids: str) -> None:
        await eventually(lambda: sorted(self.running()) == sorted(ids))


@asynccontextmanager
async def following(
    path: Path, ctx: Following | None = None, **options: Any
) -> AsyncIterator[Following]:
    """Run the source, and again each time that it fails."""
    ctx = ctx or Following()
    source = NriSource(msgspec.convert({"socket": str(path), **options}, Options, dec_hook=_hook))

    async def run() -> None:
        while True:
            try:
                await source.run(ctx)
            except TransientError as error:
                ctx.failures.append(error)
                await asyncio.sleep(0.05)

    task = asyncio.create_task(run())
    try:
        yield ctx
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


def _hook(kind: type, value: Any) -> Any:
    return kind(value)


async def eventually(happened: Callable[[], object], timeout: float = 5) -> None:
    async with asyncio.timeout(timeout):
        while not happened():
            await asyncio.sleep(0.002)


async def aside(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do something that waits for the plugin, while the loop goes on."""
    return await asyncio.to_thread(call, *args, **kwargs)
