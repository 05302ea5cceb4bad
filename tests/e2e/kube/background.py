"""An event loop in a thread, for servers that a test controls."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """An event loop in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="plugins", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 30) -> T:
        """Run a coroutine on the loop and return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def stop(self) -> None:
        self.do(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


async def _settle() -> None:
    """Cancel all tasks, so that none is destroyed while pending."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
