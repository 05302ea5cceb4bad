"""Ends the requests of a sink that has to stop, in bounded time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

STOP_SECONDS: Final = 3.0
"""Seconds that a pending request may take after the sink has to stop."""


async def run_until_stopped(
    work: Coroutine[Any, Any, None], closed: asyncio.Future[None]
) -> asyncio.Future[None]:
    """Run work to its end; once the sink has to stop, for at most `STOP_SECONDS` more.

    Args:
        work: the coroutine to run.
        closed: done once the sink has to stop.

    Returns:
        The finished task; cancelled if it took too long.
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
