"""Run the nri source against a fake runtime."""

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


class TrackingContext(FakeSourceContext):
    """A context that tracks the running containers, and keeps the error of each run."""

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
        """Return the device ids of each running container, by container id."""
        return {
            key: [device.text for claim in one.claims for device in claim.devices]
            for key, one in self.running().items()
        }

    async def until(self, *ids: str) -> None:
        await eventually(lambda: sorted(self.running()) == sorted(ids))


@asynccontextmanager
async def running_source(
    path: Path, ctx: TrackingContext | None = None, **options: Any
) -> AsyncIterator[TrackingContext]:
    """Run the source, and restart it when it fails."""
    ctx = ctx or TrackingContext()
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


async def eventually(condition: Callable[[], object], timeout: float = 5) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.002)


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call that waits for the plugin in a thread, while the event loop continues."""
    return await asyncio.to_thread(call, *args, **kwargs)
