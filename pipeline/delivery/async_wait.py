"""Waits with a time limit, which end when work is done, and cancelling of tasks."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from pipeline.base.clock import Clock


async def wait_first(clock: Clock, seconds: float, *others: "asyncio.Future[Any]") -> bool:
    """Wait until the first of some futures is done, but at most a number of seconds.

    Returns:
        Whether one of them is done. The futures are never cancelled.
    """
    if any(other.done() for other in others):
        return True
    sleep = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({sleep, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleep.cancel()
    return any(other.done() for other in others)


async def ends_within(clock: Clock, seconds: float, work: Coroutine[Any, Any, Any]) -> bool:
    """Wait until a coroutine ends, but at most a number of seconds; then cancel it.

    Returns:
        Whether it has ended.
    """
    working = asyncio.ensure_future(work)
    try:
        return await wait_first(clock, seconds, working)
    finally:
        working.cancel()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they end; their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
