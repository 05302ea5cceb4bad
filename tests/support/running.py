"""Run a source during a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from pipeline.component.contracts import Source, SourceContext

C = TypeVar("C", bound=SourceContext)


@asynccontextmanager
async def running(source: Source, ctx: C) -> AsyncIterator[C]:
    """Run a source during the `with` block; it must not end before it is cancelled."""
    task = asyncio.create_task(source.run(ctx))
    try:
        yield ctx
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
