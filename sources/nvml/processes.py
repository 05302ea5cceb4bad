"""The processes on a device: NVML's three lists made one."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, TypeAlias

from pipeline.model import Attrs, GpuProcess, Instant, ProcessList, Reading
from sources.nvml import codes, library
from sources.nvml.library import Handle, Library, ProcessInfo
from sources.nvml.readers import NONE64, Reader, Sheet

Kind: TypeAlias = Literal["compute", "graphics", "mps"]

_SYMBOLS: Final[tuple[tuple[Kind, str], ...]] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_ROOM: Final = 64
_GROWN_MOST: Final = 1 << 16


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
    nvml: Library, handle: Handle, uuid: str, good: int, wanted: frozenset[str]
) -> Reader | None:
    """Read who runs on a device. The join makes the memory readings of each process from the list.

    What was made of the lists is kept and used again while the driver says the same, which it
    mostly does.
    """
    listings: list[_Listing] = []
    for kind, symbol in _SYMBOLS:
        function = nvml.function(f"{symbol}_v3", f"{symbol}_v2")
        if function is not None:
            listings.append(_Listing(kind, function, handle))
    if not listings:
        return None
    with_count = "processes" in wanted
    last: list[bytes | None] = []
    found: tuple[GpuProcess, ...] = ()

    def read(sheet: Sheet, at: Instant) -> int:
        nonlocal last, found
        worst = codes.NOT_SUPPORTED
        now: list[bytes | None] = []
        for listing in listings:
            code = listing.read()
            if code == 0:
                now.append(listing.raw())
                if with_count:
                    sheet.append(
                        Reading(uuid, "processes", listing.attrs, listing.count, None, at, good)
                    )
                if worst in codes.NO_READING:
                    worst = 0
            elif code in codes.LOST or code in codes.DRIVER_GONE:
                return code
            else:
                now.append(None)
                if code not in codes.NO_READING or worst == codes.NOT_SUPPORTED:
                    worst = code
        if now != last:
            last = now
            found = _merged(listings)
        if worst == 0:
            sheet.processes.append(ProcessList(uuid, found, at, good))
        return worst

    return read


def _merged(listings: list[_Listing]) -> tuple[GpuProcess, ...]:
    """Make one list; a process that stands twice in a list, as on a parent of MIGs, is added up."""
    used: dict[tuple[int, Kind], int | None] = {}
    for listing in listings:
        for entry in listing.entries():
            key = (entry.pid, listing.kind)
            size = None if entry.usedGpuMemory == NONE64 else entry.usedGpuMemory
            before = used.get(key)
            used[key] = size if before is None else before + (size or 0)
    return tuple(GpuProcess(pid, kind, used[pid, kind]) for pid, kind in sorted(used))
