"""Combines a usage sample of a device with the owners of its processes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from pipeline.model import DeviceUse, GpuProcess, ProcessUse
from sources.nvml.gpu_usage_sampler import RawDeviceUse
from sources.nvml.process_owners import UNKNOWN, PidRecord, Process
from sources.nvml.process_utilization import ProcessBusyTime, scale_to_fit

_KINDS: Final[tuple[Literal["mps", "compute", "graphics"], ...]] = ("mps", "compute", "graphics")
"""A process in several lists is counted once, with the first of these kinds. An MPS client is also
in the list of compute processes, and a graphics program may be in two lists."""

_EARLY_US: Final = 20_000
"""Tolerance by which a process may seem to start after its samples: procfs rounds the start times
of the machine and of the process to hundredths of a second."""


def pids(uses: Iterable[RawDeviceUse]) -> set[int]:
    """Return the pids of all processes in the samples."""
    found: set[int] = set()
    for use in uses:
        found.update(process.pid for process in use.listed or ())
        found.update(use.utilization or ())
    return found


def to_device_use(
    raw: RawDeviceUse, processes: Mapping[int, PidRecord] | None, good_for_ns: int
) -> DeviceUse:
    """Create the `DeviceUse` of a device: who used how much of it.

    Args:
        raw: the usage sample.
        processes: records by pid; empty if the lookup failed. None if the host's processes are
            hidden: then lists and entries, even empty ones, show neither which processes there
            are nor how busy the device was.
        good_for_ns: as `DeviceUse.good_for_ns`.
    """
    if processes is None:
        raw, processes = replace(raw, listed=None, utilization=None), {}
    listed = _merged(raw.listed or ())
    has_utilization = raw.utilization is not None
    entries = raw.utilization or {}
    if raw.use.since is not None:
        # No device is busy for longer than the time that passed.
        entries = scale_to_fit(entries, raw.use.at.mono_ns - raw.use.since.mono_ns)
    servers = {
        pid for pid in listed.keys() | entries.keys() if _is_mps_server(processes.get(pid, UNKNOWN))
    }
    clients = {pid for pid, (kind, _) in listed.items() if kind == "mps"}
    mps = bool(servers) or not clients <= entries.keys()
    uses: list[ProcessUse] = []
    for pid in listed.keys() | entries.keys():
        record, entry = processes.get(pid, UNKNOWN), entries.get(pid)
        previous = _previous_process(record, raw)
        present = _listed_process(record, previous, raw)
        entry_process = present if entry is None else _process_of_entry(record, previous, entry)
        if pid in listed:
            kind, memory = listed[pid]
            busy: int | None = 0 if entry is None or entry_process is not present else entry.busy_ns
            if not has_utilization or (mps and not _has_own_entry(pid, entries, servers, clients)):
                busy = None
            uses.append(_use(pid, present, kind, memory, busy))
        if entry is not None and (pid not in listed or entry_process is not present):
            # An ended process has no memory, if the lists are reliable.
            known = not mps or (bool(servers) and pid not in servers)
            ended_busy_ns = entry.busy_ns if known else None
            uses.append(
                _use(pid, entry_process, "", None if raw.listed is None else 0, ended_busy_ns)
            )
    busy_ns = raw.use.busy_ns
    if has_utilization:
        busy_ns = sum(entry.busy_ns for entry in entries.values())
    return replace(
        raw.use,
        processes=tuple(sorted(uses, key=lambda use: (use.pid, use.started or 0, use.kind))),
        busy_ns=busy_ns,
        good_for_ns=good_for_ns,
        listed=raw.listed is not None,
        mps=mps,
    )


def _is_mps_server(record: PidRecord) -> bool:
    """Return whether a process, or another one that had its pid before, is an MPS server."""
    return any(
        process is not None and process.is_mps_server
        for process in (record.current, record.previous)
    )


def _has_own_entry(
    pid: int,
    entries: Mapping[int, ProcessBusyTime],
    servers: Collection[int],
    clients: Collection[int],
) -> bool:
    """Return whether the entry of a listed process is its own work, on a device that MPS shares.

    The work of MPS clients is in the server's entry, so a process without an entry may be busy. If
    no server was identified, each process that has an entry and is no client may be the server.
    """
    return pid in entries and (pid in clients or (bool(servers) and pid not in servers))


def _previous_process(record: PidRecord, raw: RawDeviceUse) -> Process | None:
    """Return the process that had the pid at the last usage sample and has ended, if known."""
    if raw.use.since is None or record.seen_ns < raw.use.since.mono_ns:
        return None
    return record.previous


def _listed_process(
    record: PidRecord, previous: Process | None, raw: RawDeviceUse
) -> Process | None:
    """Return the process that the driver listed."""
    if record.began_us is not None and record.began_us - _EARLY_US > raw.use.at.wall_ns // 1000:
        return previous  # the current process started after the sample
    return record.current or previous


def _process_of_entry(
    record: PidRecord, previous: Process | None, busy_time: ProcessBusyTime
) -> Process | None:
    """Return the process to which the entry of a pid belongs; None if it may be one of two."""
    if record.current is None:
        return previous
    if record.began_us is not None and busy_time.stamp_us < record.began_us - _EARLY_US:
        return previous
    # If another process had the pid before, the entry is the mean over both.
    return record.current if previous is None else None


def _merged(
    listed: Iterable[GpuProcess],
) -> dict[int, tuple[Literal["compute", "graphics", "mps"], int | None]]:
    """Return kind and memory of each process, by pid."""
    found: dict[int, tuple[Literal["compute", "graphics", "mps"], int | None]] = {}
    for process in sorted(listed, key=lambda process: _KINDS.index(process.kind)):
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
