"""Looks up whose processes are, on a thread of its own.

Reading procfs may take a while: the kernel tells of cgroups under a lock that the making and
removing of cgroups holds. Neither the event loop nor the thread that calls NVML waits for that.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from pipeline.model import Instant
from pipeline.threads import DaemonExecutor
from sources.nvml import procfs
from sources.nvml.procfs import Found, Procfs

_NOTHING: Final[Mapping[int, Found]] = {}
_MEND: Final = (
    "who used how much of a GPU is told by who holds it alone; share the host's pid namespace "
    "(hostPID: true), or mount the host's /proc and write where into the option proc"
)


class Owners:
    """What is known of processes. Outlives the runs of its source, as a thread that hangs does.

    Args:
        root: where procfs is mounted.
        chosen: somebody chose that place.
    """

    def __init__(self, root: Path = procfs.ROOT, *, chosen: bool = False) -> None:
        self.place = (root, chosen)
        self._procfs = Procfs(root)
        self._thread: DaemonExecutor | None = None
        self._asked: asyncio.Future[tuple[str, Mapping[int, Found]]] | None = None
        self._said: set[str] = set()

    async def of(
        self, pids: Collection[int], at: Instant, within: float, log: logging.Logger
    ) -> Mapping[int, Found]:
        """Look processes up.

        Args:
            pids: of the processes.
            at: the present moment.
            within: how long that may take, in seconds.
            log: is told once why nothing can be known.

        Returns:
            What is known by pid; nothing where `/proc` isn't the host's, or doesn't answer.
        """
        if not pids:
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
            self._say(f"{self.place[0]} doesn't answer", log)
            return _NOTHING
        (why, found), self._asked = self._asked.result(), None
        self._say(why, log)
        return found

    def _look(self, pids: Collection[int], at: Instant) -> tuple[str, Mapping[int, Found]]:
        root, chosen = self.place
        why = procfs.foreign(root, chosen=chosen)
        return why, _NOTHING if why else self._procfs.look(pids, at)

    def _say(self, why: str, log: logging.Logger) -> None:
        if why and why not in self._said:
            self._said.add(why)
            log.warning("%s: %s", why, _MEND)

    def rest(self) -> None:
        """Let the thread go; one that hangs is left behind, and no other is sent after it."""
        if self._thread is not None and self._asked is None:
            self._thread.shutdown()
            self._thread = None
