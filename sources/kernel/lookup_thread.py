"""What may take long: opening the log, looking processes up. On a thread of its own.

Reading procfs may wait for a lock of the kernel's, and a path may be anything.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.host.procfs import ROOT
from pipeline.model import Instant
from sources.kernel import process_owners
from sources.kernel.kmsg_device import RETRY, Log
from sources.kernel.process_owners import Process

T = TypeVar("T")

_NOTHING: Final[Mapping[int, Process]] = {}
_OPENING: Final = 5.0
_LOOKING: Final = 1.0
"""Seconds that it may take: longer than ever, unless it hangs."""


class BlockingCalls:
    """One thread, which outlives the runs of its source where it hangs."""

    def __init__(self) -> None:
        self._thread: DaemonExecutor | None = None
        self._asked: asyncio.Future[Any] | None = None
        self._said: set[str] = set()

    async def open(self, path: Path) -> Log:
        """Open the log.

        Raises:
            TransientError: it can't be opened, or that takes too long.
        """
        asked = self._begin(partial(Log, path))
        if asked is not None:
            try:
                await asyncio.wait([asked], timeout=_OPENING)
            except BaseException:
                asked.add_done_callback(_close)
                raise
            if asked.done():
                return asked.result()
            asked.add_done_callback(_close)
        raise TransientError(
            f"{path} doesn't answer; see the file system that it is on", retry_after=RETRY
        )

    async def lookup(
        self, pids: Collection[int], root: Path, now: Callable[[], Instant], log: logging.Logger
    ) -> Mapping[int, Process]:
        """Look processes up.

        Args:
            pids: of the processes.
            root: where procfs is mounted.
            now: tells the present moment, on any thread.
            log: is told once why nothing can be known.

        Returns:
            What is known by pid; nothing where procfs isn't the host's, or doesn't answer.
        """
        asked = self._begin(partial(_look, root, pids, now)) if pids else None
        if asked is None:
            return _NOTHING
        await asyncio.wait([asked], timeout=_LOOKING)
        if not asked.done():
            self._warn_once(f"{root} doesn't answer", log)
            return _NOTHING
        why, found = asked.result()
        self._warn_once(why, log)
        return found

    def _begin(self, work: Callable[[], T]) -> asyncio.Future[T] | None:
        """Begin some work; None if the thread hangs over what it was given before."""
        if self._asked is not None and not self._asked.done():
            return None
        self._thread = self._thread or DaemonExecutor("podgpu-kernel")
        asked = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._asked = asked
        return asked

    def _warn_once(self, why: str, log: logging.Logger) -> None:
        if why and why not in self._said:
            self._said.add(why)
            log.warning(
                "%s: whose processes the kernel's log names isn't known; %s",
                why,
                process_owners.FIX,
            )

    def stop_idle_thread(self) -> None:
        """Let the thread go; one that hangs is left behind, and no other is sent after it."""
        if self._thread is not None and (self._asked is None or self._asked.done()):
            self._thread.shutdown()
            self._thread = self._asked = None


def _look(
    root: Path, pids: Collection[int], now: Callable[[], Instant]
) -> tuple[str, Mapping[int, Process]]:
    why = process_owners.hidden_reason(root, is_configured=root != ROOT)
    return why, _NOTHING if why else process_owners.lookup(root, pids, now)


def _close(opened: asyncio.Future[Log]) -> None:
    """Close what nobody waited for."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().__exit__()
