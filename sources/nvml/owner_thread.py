"""Looks up on a thread which containers the processes belong to.

Reading procfs may block: the kernel reads cgroups under a lock that creating and removing cgroups
holds. Neither the event loop nor the thread that calls NVML may wait for that.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from pipeline.host.daemon_threads import DaemonExecutor
from pipeline.host.procfs import ROOT
from pipeline.model import Instant
from sources.nvml import process_owners
from sources.nvml.process_owners import PidRecord, Procfs

_NO_RECORDS: Final[Mapping[int, PidRecord]] = {}
_FIX: Final = (
    "the driver does not show the processes of other containers, so podgpu attributes usage by "
    "holder only; share the host's pid namespace (hostPID: true)"
)
_NO_RESPONSE: Final = "podgpu attributes usage by holder only until it responds"


class ProcessLookup:
    """Finds the containers of processes. Outlives the runs of its source, as a hung thread does.

    Args:
        root: where procfs is mounted.
        is_configured: whether the place comes from the configuration.

    Attributes:
        hidden_reason: why the driver hides the processes of other containers; empty if it shows
            them, None before the first lookup.
    """

    def __init__(self, root: Path = ROOT, *, is_configured: bool = False) -> None:
        self.location = (root, is_configured)
        self._procfs = Procfs(root)
        self._thread: DaemonExecutor | None = None
        self._running: asyncio.Future[Mapping[int, PidRecord] | None] | None = None
        self.hidden_reason: str | None = None
        self._warned: set[str] = set()

    async def lookup(
        self, pids: Collection[int], at: Instant, within: float, log: logging.Logger
    ) -> Mapping[int, PidRecord] | None:
        """Look up processes.

        Args:
            pids: their pids.
            at: the present time.
            within: maximum duration, in seconds.
            log: gets each reason for missing results once.

        Returns:
            The records by pid; empty if `/proc` does not respond. None if the processes of the
            host are hidden: the driver's data about processes is then incomplete.
        """
        if not pids and self.hidden_reason == "":
            return _NO_RECORDS
        if self._running is not None and self._running.done():
            self._running = None  # it ended too late: its result is for earlier pids
        if self._running is None:
            self._thread = self._thread or DaemonExecutor("podgpu-proc")
            self._running = asyncio.get_running_loop().run_in_executor(
                self._thread, self._lookup, pids, at
            )
            await asyncio.wait([self._running], timeout=within)
        if not self._running.done():
            self._warn_once(f"{self.location[0]} does not respond: {_NO_RESPONSE}", log)
            return _NO_RECORDS if self.hidden_reason == "" else None
        found, self._running = self._running.result(), None
        if self.hidden_reason:
            self._warn_once(f"{self.hidden_reason}: {_FIX}", log)
        return found

    def _lookup(self, pids: Collection[int], at: Instant) -> Mapping[int, PidRecord] | None:
        root, is_configured = self.location
        # First, so that the result is known even if the lookup of a process hangs.
        self.hidden_reason = process_owners.hidden_reason(root, is_configured=is_configured)
        return None if self.hidden_reason else self._procfs.lookup(pids, at)

    def _warn_once(self, message: str, log: logging.Logger) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("%s", message)

    def stop_idle_thread(self) -> None:
        """Stop the thread if it is idle. A thread that hangs stays, and no other is started."""
        if self._thread is not None and self._running is None:
            self._thread.shutdown()
            self._thread = None
