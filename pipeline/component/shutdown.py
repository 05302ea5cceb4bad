"""How a sink that has to stop ends what it has begun."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

STOP_SECONDS: Final = 3.0
"""Seconds that a sink which has to stop gives a request under way."""


async def run_until_stopped(
    work: Coroutine[Any, Any, None], closed: asyncio.Future[None]
) -> asyncio.Future[None]:
    """Let work end by itself; once the sink has to stop, only within `STOP_SECONDS`.

    Args:
        work: what is done.
        closed: is done once the sink has to stop.

    Returns:
        The work, done; cancelled if it was late.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, closed}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({task}, timeout=STOP_SECONDS)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    return task
