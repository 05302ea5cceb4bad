"""The processes on a device: NVML's three lists made one."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias

from pipeline.model import Attrs, GpuProcess, Instant, ProcessList, Reading
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library, ProcessInfo
from sources.nvml.readers import NONE64, GpuReadings, Reader

Kind: TypeAlias = Literal["compute", "graphics", "mps"]

_SYMBOLS: Final[tuple[tuple[Kind, str], ...]] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_ROOM: Final = 64
_GROWN_MOST: Final = 1 << 16

_ProcessSet: TypeAlias = frozenset[tuple[int, Kind]]
_NOWHERE: Final[_ProcessSet] = frozenset()


class _Listing:
    """One of the three lists, with room that grows as it is needed."""

    def __init__(self, kind: Kind, function: Callable[..., int], handle: Handle) -> None:
        self.kind = kind
        self.attrs: Attrs = (("kind", kind),)
        self.count = 0
        self._function = function
        self._handle = handle
        self._box = ctypes.c_uint()
        self._make_room(_ROOM)

    def _make_room(self, size: int) -> None:
        self._size = size
        self._array = library.process_array(size)
        self._step = ctypes.sizeof(self._array) // size
        self._call = partial(self._function, self._handle, ctypes.byref(self._box), self._array)

    def read(self) -> int:
        """List the processes; then `count` and `raw` tell them."""
        while True:
            self._box.value = self._size
            code = self._call()
            if code != codes.INSUFFICIENT_SIZE or self._size >= _GROWN_MOST:
                self.count = self._box.value if code == 0 else 0
                return code
            # Twice what is there now: more may start before the next call.
            self._make_room(min(_GROWN_MOST, max(self._box.value, self._size) * 2))

    def raw(self) -> bytes:
        """Return the list as the driver wrote it."""
        if not self.count:
            return b""
        return ctypes.string_at(self._array, self.count * self._step)

    def entries(self) -> list[ProcessInfo]:
        """Return the processes."""
        return list(self._array[: self.count])


def processes(
    nvml: Library, handle: Handle, target: tuple[str, str, int], with_count: bool, *, carries: bool
) -> Reader | None:
    """Read who runs on a device. The join makes the memory readings of each process from the list.

    What was made of the lists is kept and used again while the driver says the same, which it
    mostly does.

    Args:
        nvml: the library.
        handle: of the device.
        target: uuid, name of the field that counts them, and how long its readings are good.
        with_count: whether to count them.
        carries: whether the device may carry MIG instances. The driver lists their processes with
            the GPU too; those that stand on an instance read before are left out here, so that a
            sum over all devices has each of them once.
    """
    uuid, field, good = target
    listings: list[_Listing] = []
    for kind, symbol in _SYMBOLS:
        function = nvml.function(f"{symbol}_v3", f"{symbol}_v2")
        if function is not None:
            listings.append(_Listing(kind, function, handle))
    if not listings:
        return None
    last: tuple[_ProcessSet, list[bytes | None]] | None = None
    found: tuple[GpuProcess, ...] = ()
    counts: list[int] = []

    def read(sheet: GpuReadings, at: Instant) -> int:
        nonlocal last, found, counts
        elsewhere = _listed_processes(sheet) if carries and sheet.processes else _NOWHERE
        worst = codes.NOT_SUPPORTED
        said: list[bytes | None] = []
        for listing in listings:
            code = listing.read()
            if code == 0:
                said.append(listing.raw())
                if worst in codes.NO_READING:
                    worst = 0
            elif code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            else:
                said.append(None)
                if code not in codes.NO_READING or worst == codes.NOT_SUPPORTED:
                    worst = code
        now = (elsewhere, said)
        if now != last:
            last = now
            found, counts = _merged(listings, elsewhere)
        if with_count:
            for listing, raw, count in zip(listings, said, counts, strict=True):
                if raw is not None:
                    sheet.append(Reading(uuid, field, listing.attrs, count, None, at, good))
        if worst == 0:
            sheet.processes.append(ProcessList(uuid, found, at, good))
        return worst

    return read


def _listed_processes(sheet: GpuReadings) -> _ProcessSet:
    """Return the processes that were listed in this visit, on any device."""
    return frozenset((p.pid, p.kind) for listed in sheet.processes for p in listed.processes)


def _merged(
    listings: list[_Listing], elsewhere: _ProcessSet
) -> tuple[tuple[GpuProcess, ...], list[int]]:
    """Make one list, and count the entries of each; a process that stands twice is added up."""
    used: dict[tuple[int, Kind], int | None] = {}
    counts: list[int] = []
    for listing in listings:
        count = 0
        for entry in listing.entries():
            key = (entry.pid, listing.kind)
            if key in elsewhere:
                continue
            count += 1
            size = None if entry.usedGpuMemory == NONE64 else entry.usedGpuMemory
            before = used.get(key)
            used[key] = size if before is None else before + (size or 0)
        counts.append(count)
    return tuple(GpuProcess(pid, kind, used[pid, kind]) for pid, kind in sorted(used)), counts
