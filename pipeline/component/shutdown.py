"""Limits the time that a sink's requests may take after the sink has to stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

STOP_SECONDS: Final = 3.0
"""Seconds that a request in progress may take after the sink has to stop."""


async def run_until_stopped(
    work: Coroutine[Any, Any, None], closed: asyncio.Future[None]
) -> asyncio.Future[None]:
    """Run work until it ends, but for at most `STOP_SECONDS` after the sink has to stop.

    Args:
        work: the coroutine to run.
        closed: a future that is done once the sink has to stop.

    Returns:
        The finished task; it is cancelled if it took too long.
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
