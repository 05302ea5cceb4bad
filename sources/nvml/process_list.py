"""The processes on a device, merged from NVML's three lists."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from pipeline.model import GpuProcess, Instant, ProcessList, Reading
from sources.nvml import codes, library
from sources.nvml.reader_parts import NONE64, GpuReadings, GrowingArray, Reader, ReadTarget

Kind: TypeAlias = Literal["compute", "graphics", "mps"]

_SYMBOLS: Final[tuple[tuple[Kind, str], ...]] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_FIELD: Final = "processes"
_INITIAL_SIZE: Final = 64
_MAX_SIZE: Final = 1 << 16


def processes(target: ReadTarget, *, carries: bool) -> Reader:
    """Create a reader of the processes on a device.

    It appends a list of processes, and the number of processes of each kind if requested. An
    unchanged list is the same object, by which the join sees that nothing has changed.

    Args:
        target: the device.
        carries: whether the device may have MIG instances. The driver lists their processes for the
            GPU too. Processes that were listed for an instance in this visit are left out here, so
            that a sum over all devices has each process once.
    """
    uuid, valid_ns = target.uuid, target.wanted.fast_valid_ns
    with_count = target.wants(_FIELD)
    listings: list[tuple[Kind, GrowingArray, Callable[[Any, Any], int]]] = []
    for kind, symbol in _SYMBOLS:
        array = GrowingArray(library.ProcessInfo, _INITIAL_SIZE, _MAX_SIZE)
        call = target.nvml.function(f"{symbol}_v3", f"{symbol}_v2")
        listings.append((kind, array, partial(call, target.handle)))
    found: tuple[GpuProcess, ...] = ()

    def read(result: GpuReadings, at: Instant) -> int:
        nonlocal found
        listed_before = [p for listed in result.processes for p in listed.processes]
        on_instances = {(p.pid, p.kind) for p in listed_before} if carries else set()
        used: dict[tuple[int, Kind], int | None] = {}
        overall = codes.NOT_SUPPORTED
        for kind, array, fill in listings:
            code = array.fill(fill)
            if code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            if code != codes.OK:
                if code not in codes.NO_READING or overall == codes.NOT_SUPPORTED:
                    overall = code
                continue
            if overall in codes.NO_READING:
                overall = codes.OK
            entries = [one for one in array.entries() if (one.pid, kind) not in on_instances]
            for entry in entries:
                size = None if entry.usedGpuMemory == NONE64 else entry.usedGpuMemory
                previous = used.get((entry.pid, kind))
                # The memory of repeated entries is added up.
                used[entry.pid, kind] = size if previous is None else previous + (size or 0)
            if with_count:
                attrs = (("kind", kind),)
                result.append(Reading(uuid, _FIELD, attrs, len(entries), None, at, valid_ns))
        if overall == codes.OK:
            now = tuple(GpuProcess(pid, kind, used[pid, kind]) for pid, kind in sorted(used))
            found = found if now == found else now
            result.processes.append(ProcessList(uuid, found, at, valid_ns))
        return overall

    return read
