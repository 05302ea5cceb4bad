"""Whose the processes on the devices are, by procfs.

NVML tells of processes by number alone, and a number is used again. Together with the moment at
which it began a process can be told from any other, so what was once read of one is kept by that.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipeline.host import cgroups
from pipeline.host.procfs import HOST_PID_NAMESPACE, name, read, started_ticks, uptime_ns
from pipeline.model import Instant, PartialRef

MAX_REMEMBERED: Final = 4096
"""Processes that are remembered."""

MPS_SERVER: Final = "nvidia-cuda-mps-server"[:15]
"""What the kernel keeps of the name of an MPS server."""

_NUMBERS: Final = re.compile(r"^NSpid:([\t 0-9]+)$", re.MULTILINE)
_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, ended or not.

    Attributes:
        started: when it began, in clock ticks since the machine's start.
        owner: as `ProcessUse.owner`.
        is_mps_server: by its name it is an MPS server.
    """

    started: int
    owner: PartialRef | None
    is_mps_server: bool = False


@dataclass(frozen=True, slots=True)
class PidRecord:
    """What is known of a pid.

    Attributes:
        current: the process that has it; None where there is none any more, or none that can be
            seen.
        began_us: when that one began, by the wall clock, in microseconds; None where it was there
            when the pid was last looked up, and where that can't be told.
        previous: another process that had it when it was last looked up.
        seen_ns: when that one was last seen to be there, by the monotonic clock.
    """

    current: Process | None = None
    began_us: int | None = None
    previous: Process | None = None
    seen_ns: int = 0


UNKNOWN: Final = PidRecord()


class Procfs:
    """Looks processes up, and remembers those that it saw. For one thread at a time.

    Args:
        root: where procfs is mounted.
        most: how many processes are remembered: those that were looked up last.
    """

    def __init__(self, root: Path, most: int = MAX_REMEMBERED) -> None:
        self._root = root
        self._most = most
        self._known: dict[int, tuple[Process, int]] = {}

    def lookup(self, pids: Iterable[int], at: Instant) -> dict[int, PidRecord]:
        """Look processes up: one file is read for each that is known, two for any other.

        Args:
            pids: in the pid namespace that procfs shows.
            at: the present moment.
        """
        boot_us = self._boot_us(at)
        found = {pid: self._look(pid, at.mono_ns, boot_us) for pid in pids}
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return found

    def _look(self, pid: int, at_ns: int, boot_us: int | None) -> PidRecord:
        before, seen_ns = self._known.pop(pid, (None, 0))
        stat = read(self._root / str(pid) / "stat")
        started, serves = started_ticks(stat), name(stat) == MPS_SERVER
        if started is None:
            if before is not None:
                self._known[pid] = before, seen_ns
            return PidRecord(previous=before, seen_ns=seen_ns)
        same = before is not None and before.started == started
        if same and before is not None and before.owner is not None:
            # It may have got its name since.
            now = (
                before if before.is_mps_server == serves else replace(before, is_mps_server=serves)
            )
        else:
            now = Process(started, self._owner(pid), serves)
        # Behind all others: the first of them is the one that wasn't seen for longest.
        self._known[pid] = now, at_ns
        if same:
            return PidRecord(now)
        began_us = None if boot_us is None else boot_us + started * _TICK_US
        return PidRecord(now, began_us, before, seen_ns)

    def _owner(self, pid: int) -> PartialRef | None:
        return cgroups.container_of(read(self._root / str(pid) / "cgroup"))

    def _boot_us(self, at: Instant) -> int | None:
        """Return when the machine started, by the wall clock; None where procfs doesn't tell."""
        up_ns = uptime_ns(read(self._root / "uptime"))
        return None if up_ns is None else (at.wall_ns - up_ns) // 1000


def foreign_reason(root: Path, *, is_configured: bool) -> str:
    """Say why the host's processes aren't seen; empty if they are, as far as can be told.

    The driver lists the processes that the caller's pid namespace shows, by their numbers there,
    and passes over all others; its utilisation by process has been seen to tell of all by the
    host's numbers (driver 580). So where the two namespaces differ, no number can be relied on, and
    the host's procfs, mounted elsewhere, brings nothing back.

    Of procfs at its own place: it is the host's where the pid namespace is the first of all. In
    another one it isn't, if this process is the first there, or the first one stands where it
    stands itself, in a container. Where neither can be seen, as on a node that is itself a
    container, it is taken for the host's.

    Args:
        root: where procfs is mounted.
        is_configured: that isn't its own place: somebody chose it who knows whose it is.
    """
    if is_configured:
        return _foreign_mount_reason(root)
    try:
        namespace = str((root / "self/ns/pid").readlink())
    except OSError:
        return f"{root}/self/ns/pid can't be read"
    if namespace == HOST_PID_NAMESPACE:
        return ""
    # The first field of `stat` is the pid, in the pid namespace that this procfs shows.
    first = read(root / "self/stat").startswith("1 ")
    own, ones = read(root / "self/cgroup"), read(root / "1/cgroup")
    if first or _same_container(own, ones):
        return f"{root} shows a namespace of its own ({namespace})"
    return ""


def _foreign_mount_reason(root: Path) -> str:
    """Say why a procfs isn't that of this process' own pid namespace."""
    place = root / "1/stat"
    if not read(place):
        return f"{place} can't be read"
    # A process has a number in its own namespace and in each that is around it, as far as the
    # namespace that this procfs shows (proc_pid_status(5)); in one that is no such it isn't there.
    numbers = _NUMBERS.search(read(root / "self/status"))
    if numbers is None or len(numbers[1].split()) != 1:
        return f"{root} shows another pid namespace than podgpu's own"
    return ""


def _same_container(own: str, first: str) -> bool:
    """Whether the first process of a pid namespace is in the container, or pod, that one is in."""
    if own == first:
        return cgroups.names_container(own) or cgroups.is_root(own)
    mine, theirs = cgroups.container_of(own), cgroups.container_of(first)
    if mine is None or theirs is None:
        return False
    if cgroups.is_root(own):
        # With a cgroup namespace of its own, and the sandbox of its pod as the first process.
        return theirs.container_id != "" and theirs.uid == ""
    return mine.uid != "" and mine.uid == theirs.uid and mine.container_id != theirs.container_id
