"""Looks up whose processes are, on a thread of its own.

Reading procfs may take a while: the kernel tells of cgroups under a lock that the making and
removing of cgroups holds. Neither the event loop nor the thread that calls NVML waits for that.
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

_NOTHING: Final[Mapping[int, PidRecord]] = {}
_FIX: Final = (
    "the driver shows no other container's processes there, and who used how much of a GPU is told "
    "by who holds it alone; share the host's pid namespace (hostPID: true)"
)
_LATE: Final = "who used how much of a GPU is told by who holds it until it does"


class ProcessLookup:
    """What is known of processes. Outlives the runs of its source, as a thread that hangs does.

    Args:
        root: where procfs is mounted.
        is_configured: somebody chose that place.

    Attributes:
        hidden_reason: why the driver passes over other containers' processes; empty if it doesn't,
            None before the first look.
    """

    def __init__(self, root: Path = ROOT, *, is_configured: bool = False) -> None:
        self.place = (root, is_configured)
        self._procfs = Procfs(root)
        self._thread: DaemonExecutor | None = None
        self._running: asyncio.Future[Mapping[int, PidRecord] | None] | None = None
        self.hidden_reason: str | None = None
        self._warned: set[str] = set()

    async def lookup(
        self, pids: Collection[int], at: Instant, within: float, log: logging.Logger
    ) -> Mapping[int, PidRecord] | None:
        """Look processes up.

        Args:
            pids: of the processes.
            at: the present moment.
            within: how long that may take, in seconds.
            log: is told once why nothing can be known.

        Returns:
            What is known by pid; nothing where `/proc` doesn't answer. None where the host's
            processes are hidden: what the driver says of processes is no account of the device.
        """
        if not pids and self.hidden_reason == "":
            return _NOTHING
        if self._running is not None and self._running.done():
            self._running = None  # it came late: who was asked about then is of no use now
        if self._running is None:
            self._thread = self._thread or DaemonExecutor("podgpu-proc")
            self._running = asyncio.get_running_loop().run_in_executor(
                self._thread, self._look, pids, at
            )
            await asyncio.wait([self._running], timeout=within)
        if not self._running.done():
            self._warn_once(f"{self.place[0]} doesn't answer: {_LATE}", log)
            return _NOTHING if self.hidden_reason == "" else None
        found, self._running = self._running.result(), None
        if self.hidden_reason:
            self._warn_once(f"{self.hidden_reason}: {_FIX}", log)
        return found

    def _look(self, pids: Collection[int], at: Instant) -> Mapping[int, PidRecord] | None:
        root, chosen = self.place
        # At once: one that hangs over some process leaves it known that there are processes.
        self.hidden_reason = process_owners.foreign_reason(root, is_configured=chosen)
        return None if self.hidden_reason else self._procfs.lookup(pids, at)

    def _warn_once(self, what: str, log: logging.Logger) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s", what)

    def stop_idle_thread(self) -> None:
        """Let the thread go; one that hangs is left behind, and no other is sent after it."""
        if self._thread is not None and self._running is None:
            self._thread.shutdown()
            self._thread = None
