"""The processes on a device, merged from NVML's three lists."""

from functools import partial
from typing import Final, Literal, TypeAlias

from pipeline.model import Attrs, GpuProcess, Instant, ProcessList, Reading
from sources.nvml import codes, library
from sources.nvml.targets import NONE64, GpuReadings, GrowingArray, Reader, Target

Kind: TypeAlias = Literal["compute", "graphics", "mps"]

_SYMBOLS: Final[tuple[tuple[Kind, str], ...]] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_FIELD: Final = "processes"
_INITIAL_SIZE: Final = 64
_MAX_SIZE: Final = 1 << 16

_ProcessSet: TypeAlias = frozenset[tuple[int, Kind]]
_NO_PROCESSES: Final[_ProcessSet] = frozenset()


class _Listing:
    """One of the three lists."""

    def __init__(self, kind: Kind, symbol: str, target: Target) -> None:
        self.kind = kind
        self.attrs: Attrs = (("kind", kind),)
        call = target.nvml.function(f"{symbol}_v3", f"{symbol}_v2")
        self.array = GrowingArray(library.ProcessInfo, _INITIAL_SIZE, _MAX_SIZE)
        self.read = partial(self.array.fill, lambda count, array: call(target.handle, count, array))


def processes(target: Target, *, carries: bool) -> Reader:
    """Create a reader of the processes; the join derives memory readings per process from them.

    The merged list is reused while the driver returns the same bytes, which is usual.

    Args:
        target: the device.
        carries: whether the device may have MIG instances. The driver lists their processes for the
            GPU too. Those that were listed for an instance in this visit are left out here, so that
            a sum over all devices has each process once.
    """
    uuid, valid_ns = target.uuid, target.wanted.fast_valid_ns
    with_count = target.wants(_FIELD)
    listings = [_Listing(kind, symbol, target) for kind, symbol in _SYMBOLS]
    last: tuple[_ProcessSet, list[bytes | None]] | None = None
    found: tuple[GpuProcess, ...] = ()
    counts: list[int] = []

    def read(result: GpuReadings, at: Instant) -> int:
        nonlocal last, found, counts
        on_instances = _listed_processes(result) if carries and result.processes else _NO_PROCESSES
        overall = codes.NOT_SUPPORTED
        raw_lists: list[bytes | None] = []
        for listing in listings:
            code = listing.read()
            if code == 0:
                raw_lists.append(listing.array.raw())
                if overall in codes.NO_READING:
                    overall = 0
            elif code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            else:
                raw_lists.append(None)
                if code not in codes.NO_READING or overall == codes.NOT_SUPPORTED:
                    overall = code
        now = (on_instances, raw_lists)
        if now != last:
            last = now
            found, counts = _merged(listings, on_instances)
        if with_count:
            for listing, raw, count in zip(listings, raw_lists, counts, strict=True):
                if raw is not None:
                    result.append(Reading(uuid, _FIELD, listing.attrs, count, None, at, valid_ns))
        if overall == 0:
            result.processes.append(ProcessList(uuid, found, at, valid_ns))
        return overall

    return read


def _listed_processes(result: GpuReadings) -> _ProcessSet:
    """Return the processes that were listed in this visit for any device."""
    return frozenset((p.pid, p.kind) for listed in result.processes for p in listed.processes)


def _merged(
    listings: list[_Listing], on_instances: _ProcessSet
) -> tuple[tuple[GpuProcess, ...], list[int]]:
    """Merge the lists and count their entries; the memory of repeated entries is added up."""
    used: dict[tuple[int, Kind], int | None] = {}
    counts: list[int] = []
    for listing in listings:
        count = 0
        for entry in listing.array.entries():
            key = (entry.pid, listing.kind)
            if key in on_instances:
                continue
            count += 1
            size = None if entry.usedGpuMemory == NONE64 else entry.usedGpuMemory
            previous = used.get(key)
            used[key] = size if previous is None else previous + (size or 0)
        counts.append(count)
    return tuple(GpuProcess(pid, kind, used[pid, kind]) for pid, kind in sorted(used)), counts
