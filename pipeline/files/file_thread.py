"""A thread for blocking calls about one file, on a file system that may not respond."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host.daemon_threads import DaemonExecutor

T = TypeVar("T")

_TIMEOUT: Final = 5.0
"""Seconds in which a call must return."""

_CLOSE_TIMEOUT: Final = 0.5
"""Seconds that a stopping component waits for the call in progress."""


class FileThread:
    """Runs blocking calls about one file in a thread. While a call hangs, no other call is made.

    Args:
        name: name of the thread.
        path: the file, for messages.
        warn: called with a warning if a call does not return when the thread is closed.
    """

    def __init__(self, name: str, path: Path, warn: Callable[[str], None]) -> None:
        self._name = name
        self._path = path
        self._warn = warn
        self._thread: DaemonExecutor | None = None
        self._call: Future[Any] | None = None

    async def open(self, first: Callable[[], object]) -> None:
        """Start the thread and make the first call; if that fails, end the thread.

        Raises:
            TransientError: the call raises it, or does not end in time.
        """
        self._thread = thread = DaemonExecutor(self._name)
        try:
            await self.call(first)
        except BaseException:
            self._thread = None
            thread.shutdown()
            raise

    async def close(self, last: Callable[[], object] | None = None) -> None:
        """End the thread after the call in progress. If that call does not return soon, log it.

        Args:
            last: a call to make after the call in progress; its error is raised here.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        idle = asyncio.get_running_loop().run_in_executor(thread, last or (lambda: None))
        thread.shutdown()
        done, _ = await asyncio.wait({idle}, timeout=_CLOSE_TIMEOUT)
        if done:
            idle.result()
        else:
            idle.cancel()
            text = "the last file operation has not returned; podgpu does not wait for it"
            self._warn(f"{self._path}: {text}")

    async def call(self, function: Callable[[], T]) -> T:
        """Make a call in the thread, and return its result.

        Raises:
            TransientError: the call raises it, the call does not return within 5 s, or an earlier
                call has not returned yet.
        """
        if self._thread is None:
            raise RuntimeError("call() was called outside of the component's context")
        if self._call is None or self._call.done():
            self._call = call = self._thread.submit(function)
            answer = asyncio.wrap_future(call)
            try:
                done, _ = await asyncio.wait({answer}, timeout=_TIMEOUT)
                if done:
                    return answer.result()
            finally:
                answer.cancel()  # the thread continues with it
        raise TransientError(f"{self._path}: the file system did not respond within {_TIMEOUT:g} s")
