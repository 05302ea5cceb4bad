"""Waiting that something else can cut short."""

import asyncio
from typing import Any

from pipeline.base.clock import Clock


async def wait_first(clock: Clock, seconds: float, *others: "asyncio.Future[Any]") -> bool:
    """Wait for the first of some futures, but no longer than so many seconds.

    Returns:
        Whether one of them is done. None of them is cancelled, whatever happens.
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
    """Wait so many seconds, but no longer than until an event.

    Returns:
        Whether the event has come.
    """
    ended = asyncio.ensure_future(end.wait())
    try:
        await wait_first(clock, seconds, ended)
        return end.is_set()
    finally:
        ended.cancel()


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended, whatever came of them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
