"""Helpers for the tests of the kernel source: run it, and find events that it emitted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from pipeline.model import XidReport, XidsReported
from sources.kernel.options import Options
from sources.kernel.source import KernelSource
from tests.support.contexts import FakeSourceContext

DROPPED = "podgpu_source_dropped_total"


@contextlib.asynccontextmanager
async def running(
    ctx: FakeSourceContext, path: Path, proc: Path = Path("/nowhere")
) -> AsyncIterator["asyncio.Task[None]"]:
    """Run the source, and return when it has emitted its first event."""
    started = len(ctx.events)
    task = asyncio.create_task(KernelSource(Options(path=path, proc=proc)).run(ctx))
    try:
        await until(lambda: len(ctx.events) > started or task.done())
        yield task
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], bool], within: float = 10) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


def reports(ctx: FakeSourceContext) -> list[XidReport]:
    return [r for e in ctx.events if isinstance(e, XidsReported) for r in e.reports]


def codes(ctx: FakeSourceContext) -> list[int]:
    return [report.code for report in reports(ctx)]


def dropped(ctx: FakeSourceContext, reason: str) -> float:
    return sum(
        point.value
        for family, points in ctx.telemetry.collect({})
        if family.name == DROPPED
        for point in points
        if ("reason", reason) in point.labels
    )
