"""Finds in procfs the containers of the processes that the kernel log names.

The log has their pids in the initial pid namespace. A process may have ended by the time its line
is read, and another process may have its pid.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.host import cgroups, procfs
from pipeline.model import NS, Instant, PartialRef

FIX: Final = (
    "share the host's pid namespace (hostPID: true), or mount the host's /proc and set the option "
    "proc to its path"
)

_TICK_NS: Final = NS // os.sysconf("SC_CLK_TCK")
_COARSE_NS: Final = 30_000_000
"""By how much a process may seem too young: procfs counts in hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running process.

    Attributes:
        began_ns: its latest possible start time on the monotonic clock; None if unknown. On a
            machine that has slept, it is too early, which does no harm.
        owner: as `XidReport.owner`.
    """

    began_ns: int | None
    owner: PartialRef | None

    def owner_at(self, at: Instant) -> PartialRef | None:
        """Return the owner; None if the process started later, so another one had the pid."""
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
        pids: their pids.
        now: returns the present time.

    Returns:
        The running ones, by pid.
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
