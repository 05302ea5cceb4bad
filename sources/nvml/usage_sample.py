"""One look at who uses a GPU and its MIG instances. It is taken on the thread that calls NVML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.model import GpuProcess, Instant
from sources.nvml import codes, process_list, readers
from sources.nvml.energy_counter import FIELD as ENERGY
from sources.nvml.energy_counter import Energy
from sources.nvml.gpm import Profiling
from sources.nvml.gpu import Gpu
from sources.nvml.library import Handle, Library, address
from sources.nvml.mig_instances import MigInstances, Present
from sources.nvml.process_utilization import Entry, Utilization
from sources.nvml.read_plan import Plan
from sources.nvml.readers import Reader, Sheet

BUSY: Final = "graphics_engine_active_ratio"
"""What of GPU performance monitoring tells how long a MIG instance was busy."""

_MEMORY: Final = ("total", "free", "reserved")
_TOTAL, _FREE, _RESERVED = (readers.MEMORY_FIELDS[member] for member in _MEMORY)
_REVIVE_EVERY: Final = 60  # looks


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one device, by whose processes nobody knows yet.

    Attributes:
        device: its uuid.
        at: when.
        since: when it was looked at before, if nothing came between.
        listed: its processes; None where they can't be listed.
        entries: what each process did since then; None where that can't be told by process.
        used: all memory that isn't free, in bytes.
        reserved: what of it the driver keeps.
        busy_ns: of a MIG instance, and of a GPU whose processes are hidden, how long it was busy
            since then by its counters.
        energy_mj: the GPU's counter; None where what it said can't be true.
    """

    device: str
    at: Instant
    since: Instant | None
    listed: tuple[GpuProcess, ...] | None = None
    entries: Mapping[int, Entry] | None = None
    used: int | None = None
    reserved: int | None = None
    busy_ns: int | None = None
    energy_mj: int | None = None


@dataclass(slots=True)
class Look:
    """What a look at a GPU brought.

    Attributes:
        uuid: of the GPU.
        seen: its MIG instances, then itself; empty if it is down.
        errors: NVML's codes of what failed.
    """

    uuid: str
    seen: list[Seen] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)


class _Watched:
    """A device that is looked at again and again."""

    def __init__(self, uuid: str, plan: Plan) -> None:
        self.uuid = uuid
        self.plan = plan
        self._since: Instant | None = None
        self._looks = 0

    def look(self, sheet: Sheet, at: Instant, *tiers: list[Reader]) -> tuple[Sheet, Instant | None]:
        """Call the readers of some tiers; return what they read, and when the look before was.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        # Until this has come to its end, there was none that the next one could go on from.
        since, self._since = self._since, None
        self._looks += 1
        if self._looks % _REVIVE_EVERY == 0:
            self.plan.revive()
        own = Sheet(self.uuid, at)
        for tier in tiers:
            self.plan.run(tier, own, at)
        sheet.errors += own.errors
        if own or own.processes:
            self._since = at
        return own, since

    def forget(self) -> None:
        self._since = None
        self.plan.forget()


class GpuLooker:
    """Looks at one opened GPU, and goes on from look to look.

    Args:
        nvml: the library.
        gpu: the GPU.
        now: the clock.

    Attributes:
        interrupted: set from elsewhere: the GPU was down meanwhile.
        blind: set from elsewhere: the driver hides processes, so that its word on them doesn't
            tell how busy the GPU was.
    """

    def __init__(self, nvml: Library, gpu: Gpu, now: Callable[[], Instant]) -> None:
        self.gpu = gpu
        self.interrupted = self.blind = False
        self._nvml = nvml
        self._now = now
        self._utilization = Utilization(nvml, gpu.handle)
        shared = _shared(nvml, gpu.handle, gpu.uuid)
        # What only a GPU without MIG tells stands in the slow tier, and is called as often.
        self._energy = Energy(nvml, gpu.handle, gpu.uuid)
        plan = Plan([self._energy.read], [self._utilization.read, *shared])
        self._own = _Watched(gpu.uuid, plan)
        self._carries = self._counted = False
        self._profiling: Profiling | None = None
        self._instances: dict[tuple[str, int], _Watched] = {}

    def look(self) -> Look:
        """Look at the GPU and its instances, as far as they were chosen.

        Raises:
            DriverGoneError: the driver is gone.
        """
        look = Look(self.gpu.uuid)
        interrupted, self.interrupted = self.interrupted, False
        if interrupted or not self.gpu.up:
            self._forget()
        if self.gpu.up:
            sheet = Sheet(self.gpu.uuid, self._now())
            try:
                self.gpu.ask(lambda: self._look(look, sheet))
            except codes.DeviceLostError:
                # The next round says so.
                self._forget()
                look.seen.clear()
            look.errors += sheet.errors
        return look

    def _look(self, look: Look, sheet: Sheet) -> None:
        mig = self.gpu.mig
        if (mig is not None) != self._carries:
            # It was reset to be cut, or to be whole.
            self._carries = mig is not None
            self._forget()
        if mig is not None:
            self._look_at_instances(mig, look, sheet)
        if not self.gpu.is_read:
            return
        plan = self._own.plan
        if self.blind and not self._carries and not self._counted:
            self._counted = True
            plan.profiler = self._counters().gpu(self.gpu.uuid)
            plan.slow += [] if plan.profiler is None else [plan.profiler.read]
        at = self._now()
        tiers = [plan.fast] if self._carries else [plan.fast, plan.slow]
        read, since = self._own.look(sheet, at, *tiers)
        entries = None
        if not self._carries and since is not None:
            entries = self._utilization.within(read.at.mono_ns - since.mono_ns)
        if read or read.processes:
            look.seen.append(replace(_seen(read, since, sheet), entries=entries))

    def _look_at_instances(self, mig: MigInstances, look: Look, sheet: Sheet) -> None:
        mig.enumerate(sheet)
        there: dict[tuple[str, int], _Watched] = {}
        for present in mig.present():
            key = (present.device.uuid, address(present.handle))
            watched = self._instances.get(key) or self._made(present)
            there[key] = watched
            if watched.plan.profiler is not None:
                watched.plan.profiler.share(shared=present.shared)
            at = self._now()
            try:
                read, since = watched.look(sheet, at, watched.plan.fast)
            except codes.DeviceLostError as lost:
                sheet.errors.append(lost.code)
                watched.forget()
                continue
            if read or read.processes:
                look.seen.append(_seen(read, since, sheet))
        self._instances = there

    def _made(self, present: Present) -> _Watched:
        uuid, place = present.device.uuid, present.device.mig
        plan = Plan(_shared(self._nvml, present.handle, uuid), [])
        if place is not None:
            plan.add(self._counters().instance(uuid, place.gpu_instance_id))
        return _Watched(uuid, plan)

    def _counters(self) -> Profiling:
        if self._profiling is None:
            fields = frozenset({BUSY})
            self._profiling = Profiling(self._nvml, self.gpu.handle, fields, 0, self._now)
        return self._profiling

    def _forget(self) -> None:
        self._own.forget()
        self._energy.forget()
        self._utilization.forget()
        for watched in self._instances.values():
            watched.forget()


def _seen(read: Sheet, since: Instant | None, sheet: Sheet) -> Seen:
    """Put together what a GPU or an instance tells alike; note on the sheet what can't be true."""
    values = {reading.field: int(reading.value) for reading in read if reading.field != BUSY}
    total, free = values.get(_TOTAL), values.get(_FREE)
    ratio = next((reading.value for reading in read if reading.field == BUSY), None)
    # The window of the ratio may reach back further, over what was told before.
    passed = 0 if since is None else read.at.mono_ns - since.mono_ns
    return Seen(
        read.uuid,
        read.at,
        since,
        listed=_possible(read.processes[0].processes, total, sheet) if read.processes else None,
        # In either version of the call: the second one's "used" is without what is reserved.
        used=None if total is None or free is None else total - free,
        reserved=values.get(_RESERVED),
        busy_ns=round(ratio * passed) if ratio is not None and passed else None,
        energy_mj=values.get(ENERGY),
    )


def _possible(
    listed: tuple[GpuProcess, ...], total: int | None, sheet: Sheet
) -> tuple[GpuProcess, ...]:
    """Return the processes; none has more memory than the device."""
    if total is None or all((one.memory_bytes or 0) <= total for one in listed):
        return listed
    sheet.errors.append(codes.OUT_OF_RANGE)
    return tuple(
        replace(one, memory_bytes=None) if (one.memory_bytes or 0) > total else one
        for one in listed
    )


def _there(reader: Reader | None) -> list[Reader]:
    return [] if reader is None else [reader]


def _shared(nvml: Library, handle: Handle, uuid: str) -> list[Reader]:
    """Make what reads processes and memory of a GPU or an instance."""
    listed = process_list.processes(nvml, handle, (uuid, "", 0), False, carries=False)
    memory = readers.memory(nvml, handle, uuid, 0, frozenset({_TOTAL, _FREE, _RESERVED}))
    return [*_there(listed), *_there(memory)]
