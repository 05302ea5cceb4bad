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
from sources.nvml.process_owners import Found, Procfs

_NOTHING: Final[Mapping[int, Found]] = {}
_MEND: Final = (
    "the driver shows no other container's processes there, and who used how much of a GPU is told "
    "by who holds it alone; share the host's pid namespace (hostPID: true)"
)
_LATE: Final = "who used how much of a GPU is told by who holds it until it does"


class Owners:
    """What is known of processes. Outlives the runs of its source, as a thread that hangs does.

    Args:
        root: where procfs is mounted.
        chosen: somebody chose that place.

    Attributes:
        hidden: why the driver passes over other containers' processes; empty if it doesn't, None
            before the first look.
    """

    def __init__(self, root: Path = ROOT, *, chosen: bool = False) -> None:
        self.place = (root, chosen)
        self._procfs = Procfs(root)
        self._thread: DaemonExecutor | None = None
        self._asked: asyncio.Future[Mapping[int, Found] | None] | None = None
        self.hidden: str | None = None
        self._said: set[str] = set()

    async def of(
        self, pids: Collection[int], at: Instant, within: float, log: logging.Logger
    ) -> Mapping[int, Found] | None:
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
        if not pids and self.hidden == "":
            return _NOTHING
        if self._asked is not None and self._asked.done():
            self._asked = None  # it came late: who was asked about then is of no use now
        if self._asked is None:
            self._thread = self._thread or DaemonExecutor("podgpu-proc")
            self._asked = asyncio.get_running_loop().run_in_executor(
                self._thread, self._look, pids, at
            )
            await asyncio.wait([self._asked], timeout=within)
        if not self._asked.done():
            self._say(f"{self.place[0]} doesn't answer: {_LATE}", log)
            return _NOTHING if self.hidden == "" else None
        found, self._asked = self._asked.result(), None
        if self.hidden:
            self._say(f"{self.hidden}: {_MEND}", log)
        return found

    def _look(self, pids: Collection[int], at: Instant) -> Mapping[int, Found] | None:
        root, chosen = self.place
        # At once: one that hangs over some process leaves it known that there are processes.
        self.hidden = process_owners.foreign(root, chosen=chosen)
        return None if self.hidden else self._procfs.look(pids, at)

    def _say(self, what: str, log: logging.Logger) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", what)

    def rest(self) -> None:
        """Let the thread go; one that hangs is left behind, and no other is sent after it."""
        if self._thread is not None and self._asked is None:
            self._thread.shutdown()
            self._thread = None
