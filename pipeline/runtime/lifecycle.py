"""The phases of a running podgpu: start, changes (one at a time), stop."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Lifecycle:
    """Runs changes one after another, only after podgpu has started.

    Cancels them when podgpu stops.

    All methods must be called in the event loop.

    Attributes:
        started: set once podgpu has started.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.started = asyncio.Event()
        self._stopping = False
        self._changes: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Make a change in the body, after podgpu's start and after earlier changes.

        If podgpu stops while the calling task waits or is in the body, the task is cancelled.

        Raises:
            CancelledError: podgpu stops.
        """
        task = asyncio.current_task()
        if self._stopping or task is None:
            raise asyncio.CancelledError
        self._changes.add(task)
        try:
            await self.started.wait()
            async with self._lock:
                yield
        finally:
            self._changes.discard(task)

    def close(self) -> set[asyncio.Task[Any]]:
        """Allow no more changes, and cancel the tasks that wait for a change or make one.

        Returns:
            The cancelled tasks.
        """
        self._stopping = True
        for task in self._changes:
            task.cancel()
        return set(self._changes)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None], *, seconds: float) -> bool:
    """Run work. Cancel it when podgpu has to stop.

    Args:
        stop: set when podgpu has to stop.
        work: the coroutine to run; its errors are raised here.
        seconds: how long cancelled work may take to end.

    Returns:
        Whether the work has completed.
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
