"""Calls about a file that block, and a file system that may not answer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host.daemon_threads import DaemonExecutor

T = TypeVar("T")

_SLOW: Final = 5.0
"""Seconds that a file system has to answer."""

_FLUSH: Final = 0.5
"""Seconds that a stopping component waits for the call it is in."""


class FileThread:
    """A thread for the calls about one file; a call that doesn't end takes no second one.

    Args:
        name: of the thread.
        path: the file, for what is said of it.
        warn: is told that a call was left behind.
    """

    def __init__(self, name: str, path: Path, warn: Callable[[str], None]) -> None:
        self._name = name
        self._path = path
        self._warn = warn
        self._thread: DaemonExecutor | None = None
        self._call: Future[Any] | None = None

    async def open(self, first: Callable[[], object]) -> None:
        """Make ready for calls, and make the first; nothing is kept if that fails.

        Raises:
            TransientError: the call says so, or doesn't end in time.
        """
        self._thread = thread = DaemonExecutor(self._name)
        try:
            await self.call(first)
        except BaseException:
            self._thread = None
            thread.shutdown()
            raise

    async def close(self, last: Callable[[], object] | None = None) -> None:
        """Let the thread end after the call that it is in, unless that takes too long.

        Args:
            last: a call to make after that one.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        idle = asyncio.get_running_loop().run_in_executor(thread, last or (lambda: None))
        thread.shutdown()
        done, _ = await asyncio.wait({idle}, timeout=_FLUSH)
        if done:
            idle.result()
        else:
            idle.cancel()
            self._warn(f"gave up on {self._path}: the last call doesn't end")

    async def call(self, what: Callable[[], T]) -> T:
        """Make a call.

        Raises:
            TransientError: the call says so, or doesn't end in time.
        """
        if self._thread is None:
            raise RuntimeError("a call outside of the component's context")
        if self._call is None or self._call.done():
            self._call = call = self._thread.submit(what)
            answer = asyncio.wrap_future(call)
            try:
                done, _ = await asyncio.wait({answer}, timeout=_SLOW)
                if done:
                    return answer.result()
            finally:
                answer.cancel()  # the thread goes on with it, but nobody waits any more
        raise TransientError(f"{self._path}: the file system has not answered for {_SLOW:g} s")
