"""Finds the containers of processes in procfs.

NVML identifies processes only by pid, and pids are reused. So podgpu also remembers the start time
of the process that has a pid.
"""

import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.host import cgroups
from pipeline.host.daemon_threads import SingleCall
from pipeline.host.procfs import HOST_PID_NAMESPACE, ROOT, name, read, started_ticks, uptime_ns
from pipeline.model import Instant, PartialRef

MAX_REMEMBERED: Final = 4096
"""How many processes are remembered."""

MPS_SERVER: Final = "nvidia-cuda-mps-server"[:15]
"""The name of an MPS server as the kernel shortens it."""

_NUMBERS: Final = re.compile(r"^NSpid:([\t 0-9]+)$", re.MULTILINE)
_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, running or ended.

    Attributes:
        started: its start time, in clock ticks since the start of the machine.
        owner: the container of the process, as `ProcessUse.owner`.
        is_mps_server: whether it has the name of an MPS server.
    """

    started: int
    owner: PartialRef | None
    is_mps_server: bool = False


@dataclass(frozen=True, slots=True)
class PidRecord:
    """What is known about a pid.

    Attributes:
        current: the process that has the pid; None if it has ended or is not visible.
        began_us: start time of `current` by the wall clock, in microseconds; None if `current` had
            the pid at the last lookup too, or if the time is unknown.
        previous: another process that had the pid at the last lookup.
        seen_ns: when `previous` was last seen, by the monotonic clock; 0 without `previous`.
    """

    current: Process | None = None
    began_us: int | None = None
    previous: Process | None = None
    seen_ns: int = 0


UNKNOWN: Final = PidRecord()


class Procfs:
    """Looks up processes and remembers them. Not safe for several threads at a time.

    Args:
        root: where procfs is mounted.
        most: how many processes are remembered; those not looked up for longest are dropped.
    """

    def __init__(self, root: Path, most: int = MAX_REMEMBERED) -> None:
        self._root = root
        self._max_processes = most
        self._processes: dict[int, tuple[Process, int]] = {}

    def lookup(self, pids: Iterable[int], at: Instant) -> dict[int, PidRecord]:
        """Return what is known about some pids.

        Reads one file for each process whose container is known, two for each other process.

        Args:
            pids: pids in the pid namespace that procfs shows.
            at: the present time.
        """
        up_ns = uptime_ns(read(self._root / "uptime"))
        # The start time of the machine by the wall clock.
        boot_us = None if up_ns is None else (at.wall_ns - up_ns) // 1000
        found = {pid: self._lookup_one(pid, at.mono_ns, boot_us) for pid in pids}
        while len(self._processes) > self._max_processes:
            del self._processes[next(iter(self._processes))]
        return found

    def _lookup_one(self, pid: int, at_ns: int, boot_us: int | None) -> PidRecord:
        previous, seen_ns = self._processes.pop(pid, (None, 0))
        stat = read(self._root / str(pid) / "stat")
        started, is_server = started_ticks(stat), name(stat) == MPS_SERVER
        if started is None:
            if previous is not None:
                self._processes[pid] = previous, seen_ns
            return PidRecord(previous=previous, seen_ns=seen_ns)
        same = previous is not None and previous.started == started
        if same and previous is not None and previous.owner is not None:
            # The process may have changed its name since the last lookup.
            current = (
                previous
                if previous.is_mps_server == is_server
                else replace(previous, is_mps_server=is_server)
            )
        else:
            owner = cgroups.container_of(read(self._root / str(pid) / "cgroup"))
            current = Process(started, owner, is_server)
        # Appended at the end, so that the first entry is the least recently seen.
        self._processes[pid] = current, at_ns
        if same:
            return PidRecord(current)
        began_us = None if boot_us is None else boot_us + started * _TICK_US
        return PidRecord(current, began_us, previous, seen_ns)


def hidden_reason(root: Path, *, is_configured: bool) -> str:
    """Return why the host's processes are not visible; empty if they seem to be.

    The driver lists the processes in the caller's pid namespace by their pids there, and omits all
    others. Its utilisation by process was seen to return all processes by the host's pids (driver
    580). So if the namespaces differ, no pid is reliable, and mounting the host's procfs elsewhere
    does not help.

    The procfs at its usual place is the host's if the pid namespace is the initial one. In another
    namespace it is not the host's if this process is the first one there, or if the first one is
    in the same container or pod. If neither is the case, as on a node that is itself a container,
    it is assumed to be the host's.

    Args:
        root: where procfs is mounted.
        is_configured: whether the place comes from the configuration; only its pid namespace is
            checked then.
    """
    if is_configured:
        return _wrong_mount_reason(root)
    try:
        namespace = str((root / "self/ns/pid").readlink())
    except OSError:
        return f"cannot read {root}/self/ns/pid"
    if namespace == HOST_PID_NAMESPACE:
        return ""
    # The first field of `stat` is the pid in the namespace that this procfs shows.
    first = read(root / "self/stat").startswith("1 ")
    own_cgroup, first_cgroup = read(root / "self/cgroup"), read(root / "1/cgroup")
    if first or _same_container(own_cgroup, first_cgroup):
        return f"{root} shows podgpu's own pid namespace ({namespace}), not the host's"
    return ""


def _wrong_mount_reason(root: Path) -> str:
    """Return why a procfs does not show the pid namespace of this process; empty if it does."""
    stat_file = root / "1/stat"
    if not read(stat_file):
        return f"cannot read {stat_file}"
    # A process has one pid in its own namespace and one in each enclosing namespace, up to the one
    # that this procfs shows (proc_pid_status(5)). It is not visible in other namespaces.
    numbers = _NUMBERS.search(read(root / "self/status"))
    if numbers is None or len(numbers[1].split()) != 1:
        return f"{root} shows a pid namespace other than podgpu's own"
    return ""


def _same_container(own_cgroup: str, first: str) -> bool:
    """Return whether the first process of a pid namespace is in this process' container or pod."""
    if own_cgroup == first:
        return cgroups.names_container(own_cgroup) or cgroups.is_root(own_cgroup)
    own_ref, first_ref = cgroups.container_of(own_cgroup), cgroups.container_of(first)
    if own_ref is None or first_ref is None:
        return False
    if cgroups.is_root(own_cgroup):
        # In a cgroup namespace of its own, where the first process is the sandbox of the pod.
        return first_ref.container_id != "" and first_ref.uid == ""
    return (
        own_ref.uid != ""
        and own_ref.uid == first_ref.uid
        and own_ref.container_id != first_ref.container_id
    )


_NO_RECORDS: Final[Mapping[int, PidRecord]] = {}
_FIX: Final = (
    "the driver does not show the processes of other containers, so podgpu attributes usage by "
    "holder only; share the host's pid namespace (hostPID: true)"
)
_NO_RESPONSE: Final = "podgpu attributes usage by holder only until it responds"


class ProcessLookup:
    """Finds the containers of processes on a thread.

    It outlives the runs of its source, as a hung thread does.

    Reading procfs may block: the kernel reads cgroups under a lock that creating and removing
    cgroups holds. Neither the event loop nor the thread that calls NVML may wait for that.

    Args:
        root: where procfs is mounted.

    Attributes:
        hidden_reason: why the driver hides the processes of other containers; empty if it shows
            them, None before the first lookup.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._procfs = Procfs(root)
        self.thread = SingleCall("podgpu-proc")
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
        try:
            records = await self.thread.result(partial(self._lookup, pids, at), within)
        except TimeoutError:
            self._warn_once(f"{self.root} does not respond: {_NO_RESPONSE}", log)
            return _NO_RECORDS if self.hidden_reason == "" else None
        if self.hidden_reason:
            self._warn_once(f"{self.hidden_reason}: {_FIX}", log)
        return records

    def _lookup(self, pids: Collection[int], at: Instant) -> Mapping[int, PidRecord] | None:
        # First, so that the result is known even if the lookup of a process hangs.
        self.hidden_reason = hidden_reason(self.root, is_configured=self.root != ROOT)
        return None if self.hidden_reason else self._procfs.lookup(pids, at)

    def _warn_once(self, message: str, log: logging.Logger) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("%s", message)
