"""Waits that end early when a future or an event is done."""

import asyncio
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


async def wait_or_stop(clock: Clock, seconds: float, end: asyncio.Event) -> bool:
    """Wait until an event is set, but at most a number of seconds.

    Returns:
        Whether the event is set.
    """
    ended = asyncio.ensure_future(end.wait())
    try:
        await wait_first(clock, seconds, ended)
        return end.is_set()
    finally:
        ended.cancel()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they end; their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
