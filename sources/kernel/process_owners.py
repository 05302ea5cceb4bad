"""Finds in procfs the containers of the processes that the kernel log names, on a thread.

Reading procfs may wait for a lock of the kernel, and the configured path may be on any file system.
So calls that may block, such as opening the log, run on a thread.

The log has the pids of the processes in the initial pid namespace. A process may have ended by the
time its line is read, and another process may have its pid.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pipeline.base.errors import TransientError
from pipeline.host import cgroups, procfs
from pipeline.host.daemon_threads import SingleCall
from pipeline.model import NS, Instant, PartialRef
from sources.kernel.kmsg_device import RETRY, Log

FIX: Final = (
    "share the host's pid namespace (hostPID: true), or mount the host's /proc and set the option "
    "proc to its path"
)

_TICK_NS: Final = NS // os.sysconf("SC_CLK_TCK")
_COARSE_NS: Final = 30_000_000
"""By how much a process may seem too young: procfs counts in hundredths of a second."""
_OPEN_TIMEOUT: Final = 5.0
_LOOKUP_TIMEOUT: Final = 1.0
"""Maximum duration in seconds: more than a call needs, unless it hangs."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process.

    Attributes:
        began_ns: its latest possible start time on the monotonic clock; None if unknown. On a
            machine that has slept, this time is too early, which does no harm.
        owner: the container of the process, as `XidReport.owner`.
    """

    began_ns: int | None
    owner: PartialRef | None

    def owner_at(self, at: Instant) -> PartialRef | None:
        """Return the owner; None if the process started after `at`, so another one had the pid."""
        late = self.began_ns is not None and self.began_ns - _COARSE_NS > at.mono_ns
        return None if late else self.owner


def hidden_reason(root: Path, *, is_configured: bool) -> str:
    """Return why procfs does not show the host's processes; empty if it does.

    Args:
        root: where procfs is mounted.
        is_configured: whether the place comes from the configuration.
    """
    place = root / ("1" if is_configured else "self") / "ns/pid"
    try:
        namespace = str(place.readlink())
    except OSError:
        if is_configured and procfs.read(root / "1/stat"):
            return ""  # the namespace is visible only with the permission to trace the process
        return f"cannot read {place}"
    return "" if namespace == procfs.HOST_PID_NAMESPACE else f"{root} shows another pid namespace"


def lookup(root: Path, pids: Iterable[int], now: Callable[[], Instant]) -> Mapping[int, Process]:
    """Look up processes. Blocking.

    Args:
        root: where procfs is mounted; it must show the processes of the host.
        pids: pids of the processes.
        now: returns the present time.

    Returns:
        The running processes, by pid.
    """
    uptime_ns = procfs.uptime_ns(procfs.read(root / "uptime"))
    # After reading it, so that no process seems older than it is.
    booted_ns = None if uptime_ns is None else now().mono_ns - uptime_ns
    found: dict[int, Process] = {}
    for pid in pids:
        place = root / str(pid)
        ticks = procfs.started_ticks(procfs.read(place / "stat"))
        owner = cgroups.container_of(procfs.read(place / "cgroup"))
        # The process may have ended between the reads, and another one may have its pid.
        if ticks is None or procfs.started_ticks(procfs.read(place / "stat")) != ticks:
            continue
        began_ns = None if booted_ns is None else booted_ns + ticks * _TICK_NS
        found[pid] = Process(began_ns, owner)
    return found


_NO_PROCESSES: Final[Mapping[int, Process]] = {}


class BlockingCalls:
    """Makes blocking calls in one thread.

    If a call hangs, the thread outlives the runs of its source, and no other call starts until
    that call returns.
    """

    def __init__(self) -> None:
        self.thread = SingleCall("podgpu-kernel")
        self._logged: set[str] = set()

    async def open(self, path: Path) -> Log:
        """Open the log.

        Raises:
            TransientError: the log cannot be opened, or opening it takes too long.
        """
        future = self.thread.start(partial(Log, path))
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
            pids: pids of the processes.
            root: where procfs is mounted.
            now: returns the present time, on any thread.
            log: logs each reason for missing results once.

        Returns:
            The processes by pid; empty if procfs is not the host's, or does not respond.
        """
        if not pids:
            return _NO_PROCESSES
        try:
            work = partial(_lookup, root, pids, now)
            reason, found = await self.thread.result(work, _LOOKUP_TIMEOUT)
        except TimeoutError:
            reason, found = f"{root} does not respond", _NO_PROCESSES
        if reason and reason not in self._logged:
            self._logged.add(reason)
            log.warning(
                "%s: podgpu cannot find the containers of processes in the kernel log; %s",
                reason,
                FIX,
            )
        return found


def _lookup(
    root: Path, pids: Collection[int], now: Callable[[], Instant]
) -> tuple[str, Mapping[int, Process]]:
    reason = hidden_reason(root, is_configured=root != procfs.ROOT)
    return reason, _NO_PROCESSES if reason else lookup(root, pids, now)


def _close(opened: asyncio.Future[Log]) -> None:
    """Close a log that was opened too late."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result().__exit__()
