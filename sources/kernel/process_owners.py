"""Whose the processes are that the kernel's log names, by procfs.

The log names them by their numbers in the first of all pid namespaces. A process may have ended by
the time its line is read, and another one may have its number.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.host import cgroups, procfs
from pipeline.model import NS, Instant, PartialRef

FIX: Final = (
    "share the host's pid namespace (hostPID: true), or mount the host's /proc and write where "
    "into the option proc"
)

_TICK_NS: Final = NS // os.sysconf("SC_CLK_TCK")
_COARSE_NS: Final = 30_000_000
"""By so much a process may seem younger than it is: procfs counts in hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is there.

    Attributes:
        began_ns: when it began at the latest, on the monotonic clock; None where that can't be
            told. On a machine that has slept it is too early, and so harmless.
        owner: as `XidReport.owner`.
    """

    began_ns: int | None
    owner: PartialRef | None

    def owner_at(self, at: Instant) -> PartialRef | None:
        """Return whose it is, unless it began after a moment: then another one had its number."""
        late = self.began_ns is not None and self.began_ns - _COARSE_NS > at.mono_ns
        return None if late else self.owner


def hidden_reason(root: Path, *, is_configured: bool) -> str:
    """Say why procfs doesn't show the processes of the whole machine; empty if it does.

    Args:
        root: where procfs is mounted.
        is_configured: that isn't its own place: somebody chose it who knows whose it is.
    """
    place = root / ("1" if is_configured else "self") / "ns/pid"
    try:
        namespace = str(place.readlink())
    except OSError:
        if is_configured and procfs.read(root / "1/stat"):
            return ""  # whose it is may be seen by those alone who may trace that process
        return f"{place} can't be read"
    return "" if namespace == procfs.HOST_PID_NAMESPACE else f"{root} shows another pid namespace"


def lookup(root: Path, pids: Iterable[int], now: Callable[[], Instant]) -> Mapping[int, Process]:
    """Look processes up. Blocking.

    Args:
        root: where procfs is mounted; it shows the processes of the whole machine.
        pids: of the processes.
        now: tells the present moment.

    Returns:
        Those that are there, by pid.
    """
    uptime_ns = procfs.uptime_ns(procfs.read(root / "uptime"))
    # Behind it, however long that took: then no process seems older than it is.
    booted_ns = None if uptime_ns is None else now().mono_ns - uptime_ns
    found: dict[int, Process] = {}
    for pid in pids:
        place = root / str(pid)
        ticks = procfs.started_ticks(procfs.read(place / "stat"))
        owner = cgroups.container_of(procfs.read(place / "cgroup"))
        # In between it may have ended, and another one have got its number.
        if ticks is None or procfs.started_ticks(procfs.read(place / "stat")) != ticks:
            continue
        began_ns = None if booted_ns is None else booted_ns + ticks * _TICK_NS
        found[pid] = Process(began_ns, owner)
    return found
