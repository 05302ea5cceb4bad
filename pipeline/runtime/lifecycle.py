"""The states of a running podgpu: it starts, takes over changes one at a time, and stops once."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Lifecycle:
    """Orders changes behind the start, and ends them before the stop.

    All methods belong to the event loop.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._started = asyncio.Event()
        self._stopping = False
        self._changes: set[asyncio.Task[Any]] = set()

    def started(self) -> None:
        """Let changes begin."""
        self._started.set()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Make a change in the body, once podgpu has started and the changes before are done.

        The task that waits here, or is in the body, is cancelled when podgpu stops.

        Raises:
            CancelledError: podgpu stops.
        """
        task = asyncio.current_task()
        if self._stopping or task is None:
            raise asyncio.CancelledError
        self._changes.add(task)
        try:
            await self._started.wait()
            async with self._lock:
                yield
        finally:
            self._changes.discard(task)

    def close(self) -> set[asyncio.Task[Any]]:
        """Let no change begin any more, and cancel those that wait or are under way.

        Returns:
            The tasks that were cancelled.
        """
        self._stopping = True
        for task in self._changes:
            task.cancel()
        return set(self._changes)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None], *, seconds: float) -> bool:
    """Do work, and give it up when podgpu is to stop.

    Args:
        stop: set when podgpu is to stop.
        work: what to do; its errors are raised here.
        seconds: how long work that is cancelled may take to end.

    Returns:
        Whether the work is done.
    """
    working = asyncio.ensure_future(work)
    working.add_done_callback(lambda done: done.cancelled() or done.exception())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if working.cancel():
            await asyncio.wait({working}, timeout=seconds)
    if working.done() and not working.cancelled():
        working.result()
        return True
    return False
