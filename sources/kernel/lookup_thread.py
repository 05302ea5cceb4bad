"""Calls that may block, on a thread: opening the log, and looking up processes.

Reading procfs may wait for a lock of the kernel, and the configured path may be anything.
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

_NO_PROCESSES: Final[Mapping[int, Process]] = {}
_OPEN_TIMEOUT: Final = 5.0
_LOOKUP_TIMEOUT: Final = 1.0
"""Maximum duration in seconds: more than a call needs, unless it hangs."""


class BlockingCalls:
    """One thread, which outlives the runs of its source if it hangs."""

    def __init__(self) -> None:
        self._thread: DaemonExecutor | None = None
        self._running: asyncio.Future[Any] | None = None
        self._logged: set[str] = set()

    async def open(self, path: Path) -> Log:
        """Open the log.

        Raises:
            TransientError: it cannot be opened, or opening takes too long.
        """
        future = self._start(partial(Log, path))
        if future is not None:
            try:
                await asyncio.wait([future], timeout=_OPEN_TIMEOUT)
            except BaseException:
                future.add_done_callback(_close)
                raise
            if future.done():
                return future.result()
            future.add_done_callback(_close)
        raise TransientError(
            f"{path} does not respond; check the file system that it is on", retry_after=RETRY
        )

    async def lookup(
        self, pids: Collection[int], root: Path, now: Callable[[], Instant], log: logging.Logger
    ) -> Mapping[int, Process]:
        """Look up processes.

        Args:
            pids: their pids.
            root: where procfs is mounted.
            now: returns the present time, on any thread.
            log: gets each reason for missing results once.

        Returns:
            The processes by pid; empty if procfs is not the host's, or does not respond.
        """
        future = self._start(partial(_lookup, root, pids, now)) if pids else None
        if future is None:
            return _NO_PROCESSES
        await asyncio.wait([future], timeout=_LOOKUP_TIMEOUT)
        if not future.done():
            self._warn_once(f"{root} does not respond", log)
            return _NO_PROCESSES
        reason, found = future.result()
        self._warn_once(reason, log)
        return found

    def _start(self, work: Callable[[], T]) -> asyncio.Future[T] | None:
        """Start a call; return None if the thread still hangs in an earlier one."""
        if self._running is not None and not self._running.done():
            return None
        self._thread = self._thread or DaemonExecutor("podgpu-kernel")
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._running = future
        return future

    def _warn_once(self, reason: str, log: logging.Logger) -> None:
        if reason and reason not in self._logged:
            self._logged.add(reason)
            log.warning(
                "%s: podgpu cannot find the containers of processes in the kernel log; %s",
                reason,
                process_owners.FIX,
            )

    def stop_idle_thread(self) -> None:
        """Stop the thread if it is idle. A thread that hangs stays, and no other is started."""
        if self._thread is not None and (self._running is None or self._running.done()):
            self._thread.shutdown()
            self._thread = self._running = None


def _lookup(
    root: Path, pids: Collection[int], now: Callable[[], Instant]
) -> tuple[str, Mapping[int, Process]]:
    reason = process_owners.hidden_reason(root, is_configured=root != ROOT)
    return reason, _NO_PROCESSES if reason else process_owners.lookup(root, pids, now)


def _close(opened: asyncio.Future[Log]) -> None:
    """Close a log that was opened too late."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().__exit__()
