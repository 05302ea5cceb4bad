"""Runs a source for the length of a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from pipeline.component.contracts import Source, SourceContext

C = TypeVar("C", bound=SourceContext)


@asynccontextmanager
async def running(source: Source, ctx: C) -> AsyncIterator[C]:
    """Run a source that goes on until it is cancelled, and then ends by that."""
    task = asyncio.create_task(source.run(ctx))
    try:
        yield ctx
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
