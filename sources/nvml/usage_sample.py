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
from sources.nvml.mig_instances import MigInstance, MigInstances
from sources.nvml.process_utilization import ProcessBusyTime, Utilization
from sources.nvml.read_plan import Plan
from sources.nvml.readers import GpuReadings, Reader

BUSY: Final = "graphics_engine_active_ratio"
"""What of GPU performance monitoring tells how long a MIG instance was busy."""

_MEMORY: Final = ("total", "free", "reserved")
_TOTAL, _FREE, _RESERVED = (readers.MEMORY_FIELDS[member] for member in _MEMORY)
_REVIVE_EVERY: Final = 60  # looks


@dataclass(frozen=True, slots=True)
class RawDeviceUse:
    """What was seen of one device, by whose processes nobody knows yet.

    Attributes:
        device: its uuid.
        at: when.
        since: when it was looked at before, if nothing came between.
        listed: its processes; None where they can't be listed.
        utilization: what each process did since then; None where that can't be told by process.
        memory_used_bytes: all memory that isn't free, in bytes.
        memory_reserved_bytes: what of it the driver keeps.
        busy_ns: of a MIG instance, and of a GPU whose processes are hidden, how long it was busy
            since then by its counters.
        energy_mj: the GPU's counter; None where what it said can't be true.
    """

    device: str
    at: Instant
    since: Instant | None
    listed: tuple[GpuProcess, ...] | None = None
    utilization: Mapping[int, ProcessBusyTime] | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    busy_ns: int | None = None
    energy_mj: int | None = None


@dataclass(slots=True)
class GpuSample:
    """What a look at a GPU brought.

    Attributes:
        uuid: of the GPU.
        devices: its MIG instances, then itself; empty if it is down.
        errors: NVML's codes of what failed.
    """

    uuid: str
    devices: list[RawDeviceUse] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)


class _SampledDevice:
    """A device that is looked at again and again."""

    def __init__(self, uuid: str, plan: Plan) -> None:
        self.uuid = uuid
        self.plan = plan
        self._since: Instant | None = None
        self._samples = 0

    def read(
        self, sheet: GpuReadings, at: Instant, *tiers: list[Reader]
    ) -> tuple[GpuReadings, Instant | None]:
        """Call the readers of some tiers; return what they read, and when the look before was.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        # Until this has come to its end, there was none that the next one could go on from.
        since, self._since = self._since, None
        self._samples += 1
        if self._samples % _REVIVE_EVERY == 0:
            self.plan.revive()
        own = GpuReadings(self.uuid, at)
        for tier in tiers:
            self.plan.run(tier, own, at)
        sheet.errors += own.errors
        if own or own.processes:
            self._since = at
        return own, since

    def forget(self) -> None:
        self._since = None
        self.plan.reset()


class GpuUsageSampler:
    """Looks at one opened GPU, and goes on from look to look.

    Args:
        nvml: the library.
        gpu: the GPU.
        now: the clock.

    Attributes:
        was_down: set from elsewhere: the GPU was down meanwhile.
        processes_hidden: set from elsewhere: the driver hides processes, so that its word on them
            doesn't tell how busy the GPU was.
    """

    def __init__(self, nvml: Library, gpu: Gpu, now: Callable[[], Instant]) -> None:
        self.gpu = gpu
        self.was_down = self.processes_hidden = False
        self._nvml = nvml
        self._now = now
        self._utilization = Utilization(nvml, gpu.handle)
        shared = _shared(nvml, gpu.handle, gpu.uuid)
        # What only a GPU without MIG tells stands in the slow tier, and is called as often.
        self._energy = Energy(nvml, gpu.handle, gpu.uuid)
        plan = Plan([self._energy.read], [self._utilization.read, *shared])
        self._own = _SampledDevice(gpu.uuid, plan)
        self._has_instances = self._counted = False
        self._profiling: Profiling | None = None
        self._instances: dict[tuple[str, int], _SampledDevice] = {}

    def sample(self) -> GpuSample:
        """Look at the GPU and its instances, as far as they were chosen.

        Raises:
            DriverGoneError: the driver is gone.
        """
        look = GpuSample(self.gpu.uuid)
        interrupted, self.was_down = self.was_down, False
        if interrupted or not self.gpu.up:
            self._forget()
        if self.gpu.up:
            sheet = GpuReadings(self.gpu.uuid, self._now())
            try:
                self.gpu.query(lambda: self._sample_gpu(look, sheet))
            except codes.DeviceLostError:
                # The next round says so.
                self._forget()
                look.devices.clear()
            look.errors += sheet.errors
        return look

    def _sample_gpu(self, sample: GpuSample, sheet: GpuReadings) -> None:
        mig = self.gpu.mig
        if (mig is not None) != self._has_instances:
            # It was reset to be cut, or to be whole.
            self._has_instances = mig is not None
            self._forget()
        if mig is not None:
            self._sample_instances(mig, sample, sheet)
        if not self.gpu.is_read:
            return
        plan = self._own.plan
        if self.processes_hidden and not self._has_instances and not self._counted:
            self._counted = True
            plan.profiler = self._counters().gpu(self.gpu.uuid)
            plan.slow += [] if plan.profiler is None else [plan.profiler.read]
        at = self._now()
        tiers = [plan.fast] if self._has_instances else [plan.fast, plan.slow]
        read, since = self._own.read(sheet, at, *tiers)
        entries = None
        if not self._has_instances and since is not None:
            entries = self._utilization.scaled_to(read.at.mono_ns - since.mono_ns)
        if read or read.processes:
            sample.devices.append(replace(_raw_use(read, since, sheet), utilization=entries))

    def _sample_instances(self, mig: MigInstances, sample: GpuSample, sheet: GpuReadings) -> None:
        mig.enumerate(sheet)
        there: dict[tuple[str, int], _SampledDevice] = {}
        for present in mig.present_instances():
            key = (present.device.uuid, address(present.handle))
            watched = self._instances.get(key) or self._made(present)
            there[key] = watched
            if watched.plan.profiler is not None:
                watched.plan.profiler.set_shared(shared=present.shared)
            at = self._now()
            try:
                read, since = watched.read(sheet, at, watched.plan.fast)
            except codes.DeviceLostError as lost:
                sheet.errors.append(lost.code)
                watched.forget()
                continue
            if read or read.processes:
                sample.devices.append(_raw_use(read, since, sheet))
        self._instances = there

    def _made(self, present: MigInstance) -> _SampledDevice:
        uuid, place = present.device.uuid, present.device.mig
        plan = Plan(_shared(self._nvml, present.handle, uuid), [])
        if place is not None:
            plan.add(self._counters().instance(uuid, place.gpu_instance_id))
        return _SampledDevice(uuid, plan)

    def _counters(self) -> Profiling:
        if self._profiling is None:
            fields = frozenset({BUSY})
            self._profiling = Profiling(self._nvml, self.gpu.handle, fields, 0, self._now)
        return self._profiling

    def _forget(self) -> None:
        self._own.forget()
        self._energy.reset()
        self._utilization.reset()
        for watched in self._instances.values():
            watched.forget()


def _raw_use(read: GpuReadings, since: Instant | None, sheet: GpuReadings) -> RawDeviceUse:
    """Put together what a GPU or an instance tells alike; note on the sheet what can't be true."""
    values = {reading.field: int(reading.value) for reading in read if reading.field != BUSY}
    total, free = values.get(_TOTAL), values.get(_FREE)
    ratio = next((reading.value for reading in read if reading.field == BUSY), None)
    # The window of the ratio may reach back further, over what was told before.
    passed = 0 if since is None else read.at.mono_ns - since.mono_ns
    return RawDeviceUse(
        read.uuid,
        read.at,
        since,
        listed=_plausible(read.processes[0].processes, total, sheet) if read.processes else None,
        # In either version of the call: the second one's "used" is without what is reserved.
        memory_used_bytes=None if total is None or free is None else total - free,
        memory_reserved_bytes=values.get(_RESERVED),
        busy_ns=round(ratio * passed) if ratio is not None and passed else None,
        energy_mj=values.get(ENERGY),
    )


def _plausible(
    listed: tuple[GpuProcess, ...], total: int | None, sheet: GpuReadings
) -> tuple[GpuProcess, ...]:
    """Return the processes; none has more memory than the device."""
    if total is None or all((one.memory_bytes or 0) <= total for one in listed):
        return listed
    sheet.errors.append(codes.OUT_OF_RANGE)
    return tuple(
        replace(one, memory_bytes=None) if (one.memory_bytes or 0) > total else one
        for one in listed
    )


def _present(reader: Reader | None) -> list[Reader]:
    return [] if reader is None else [reader]


def _shared(nvml: Library, handle: Handle, uuid: str) -> list[Reader]:
    """Make what reads processes and memory of a GPU or an instance."""
    listed = process_list.processes(nvml, handle, (uuid, "", 0), False, carries=False)
    memory = readers.memory(nvml, handle, uuid, 0, frozenset({_TOTAL, _FREE, _RESERVED}))
    return [*_present(listed), *_present(memory)]
