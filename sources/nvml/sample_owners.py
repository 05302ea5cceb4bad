"""What was seen on a device and whose processes those are, put together."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from pipeline.model import DeviceUse, GpuProcess, ProcessUse
from sources.nvml.process_owners import UNKNOWN, PidRecord, Process
from sources.nvml.process_utilization import ProcessBusyTime, scale_to_fit
from sources.nvml.usage_sample import RawDeviceUse

_KINDS: Final[tuple[Literal["mps", "compute", "graphics"], ...]] = ("mps", "compute", "graphics")
"""A process that stands in several lists counts for the first: it is the same one, and so is its
memory. A client of MPS stands in that of computing ones too, a program that draws in two."""

_EARLY_US: Final = 20_000
"""By so much a process may seem to have begun after what it did: procfs counts in hundredths of a
second, the start of the machine as well as that of the process."""


def pids(uses: Iterable[RawDeviceUse]) -> set[int]:
    """Return the processes that were seen anywhere."""
    found: set[int] = set()
    for one in uses:
        found.update(process.pid for process in one.listed or ())
        found.update(one.utilization or ())
    return found


def to_device_use(
    raw: RawDeviceUse, processes: Mapping[int, PidRecord] | None, good_for_ns: int
) -> DeviceUse:
    """Say who used a device.

    Args:
        raw: what was seen of it.
        processes: what is known of the processes, by pid; none where nobody could look. None where
            the host's processes are hidden: then lists and entries, those that are empty among
            them, tell neither who is there nor how busy the device was.
        good_for_ns: as `DeviceUse.good_for_ns`.
    """
    if processes is None:
        raw, processes = replace(raw, listed=None, utilization=None), {}
    listed = _merged(raw.listed or ())
    told = raw.utilization is not None
    entries = raw.utilization or {}
    if raw.since is not None:
        # Nothing is busy for longer than there was time.
        entries = scale_to_fit(entries, raw.at.mono_ns - raw.since.mono_ns)
    servers = {
        pid for pid in listed.keys() | entries.keys() if _is_mps_server(processes.get(pid, UNKNOWN))
    }
    clients = {pid for pid, (kind, _) in listed.items() if kind == "mps"}
    mps = bool(servers) or not clients <= entries.keys()
    uses: list[ProcessUse] = []
    for pid in listed.keys() | entries.keys():
        found, entry = processes.get(pid, UNKNOWN), entries.get(pid)
        before = _previous_process(found, raw)
        present = _listed_process(found, before, raw)
        doer = present if entry is None else _process_of_entry(found, before, entry)
        if pid in listed:
            kind, memory = listed[pid]
            busy: int | None = 0 if entry is None or doer is not present else entry.busy_ns
            if not told or (mps and not _has_own_entry(pid, entries, servers, clients)):
                busy = None
            uses.append(_use(pid, present, kind, memory, busy))
        if entry is not None and (pid not in listed or doer is not present):
            # One that has ended has no memory, if the lists can be believed.
            known = not mps or (bool(servers) and pid not in servers)
            done = entry.busy_ns if known else None
            uses.append(_use(pid, doer, "", None if raw.listed is None else 0, done))
    busy_ns = raw.busy_ns
    if told:
        busy_ns = sum(entry.busy_ns for entry in entries.values())
    return DeviceUse(
        raw.device,
        raw.at,
        raw.since,
        tuple(sorted(uses, key=lambda use: (use.pid, use.started or 0, use.kind))),
        raw.memory_used_bytes,
        raw.memory_reserved_bytes,
        busy_ns,
        raw.energy_mj,
        good_for_ns,
        listed=raw.listed is not None,
        mps=mps,
    )


def _is_mps_server(found: PidRecord) -> bool:
    """Whether a process, or the one that had its pid before it, is an MPS server."""
    return any(one is not None and one.is_mps_server for one in (found.current, found.previous))


def _has_own_entry(
    pid: int,
    entries: Mapping[int, ProcessBusyTime],
    servers: Collection[int],
    clients: Collection[int],
) -> bool:
    """Whether the driver tells of a listed process what it did itself, beside an MPS server.

    What clients do stands in the server's entry, so one without an entry may have done anything.
    Where no server could be recognised, it may be any process that has an entry and is no client.
    """
    return pid in entries and (pid in clients or (bool(servers) and pid not in servers))


def _previous_process(found: PidRecord, seen: RawDeviceUse) -> Process | None:
    """Return who had the pid at the look before and hasn't it now, if that is known."""
    if seen.since is None or found.seen_ns < seen.since.mono_ns:
        return None
    return found.previous


def _listed_process(found: PidRecord, before: Process | None, seen: RawDeviceUse) -> Process | None:
    """Return whom the driver listed."""
    if found.began_us is not None and found.began_us - _EARLY_US > seen.at.wall_ns // 1000:
        return before  # it began after that
    return found.current or before


def _process_of_entry(
    found: PidRecord, before: Process | None, busy_time: ProcessBusyTime
) -> Process | None:
    """Return who did what the driver tells of a pid; None where it may have been one or another."""
    if found.current is None:
        return before
    if found.began_us is not None and busy_time.stamp_us < found.began_us - _EARLY_US:
        return before
    # With another one there at the beginning, it is the mean over both.
    return found.current if before is None else None


def _merged(
    listed: Iterable[GpuProcess],
) -> dict[int, tuple[Literal["compute", "graphics", "mps"], int | None]]:
    """Return each process once, with its kind and its memory."""
    found: dict[int, tuple[Literal["compute", "graphics", "mps"], int | None]] = {}
    for process in sorted(listed, key=lambda one: _KINDS.index(one.kind)):
        kind, memory = found.get(process.pid, (process.kind, None))
        if process.memory_bytes is not None:
            memory = max(memory or 0, process.memory_bytes)
        found[process.pid] = kind, memory
    return found


def _use(
    pid: int,
    process: Process | None,
    kind: Literal["compute", "graphics", "mps", ""],
    memory: int | None,
    busy_ns: int | None,
) -> ProcessUse:
    started, owner = (None, None) if process is None else (process.started, process.owner)
    return ProcessUse(pid, started, owner, kind, memory, busy_ns)
