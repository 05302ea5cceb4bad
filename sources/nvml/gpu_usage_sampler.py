"""One usage sample of a GPU and its MIG instances, taken on the thread that calls NVML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pipeline.model import DeviceUse, GpuProcess, Instant
from sources.nvml import codes
from sources.nvml.composite_readers import MEMORY_FIELDS
from sources.nvml.counters import ENERGY, Energy
from sources.nvml.gpm import Profiling
from sources.nvml.library import Library, address
from sources.nvml.mig_instances import MigInstance, MigInstances
from sources.nvml.open_gpu import OpenGpu
from sources.nvml.process_utilization import ProcessBusyTime, Utilization
from sources.nvml.read_plan import Plan, shared
from sources.nvml.reader_parts import GpuReadings, Reader, ReadingRequest, ReadTarget

BUSY: Final = "graphics_engine_active_ratio"
"""The GPM field that shows how long a MIG instance was busy."""

_TOTAL, _FREE, _RESERVED = (MEMORY_FIELDS[member] for member in ("total", "free", "reserved"))
_WANTED: Final = ReadingRequest(frozenset({_TOTAL, _FREE, _RESERVED, BUSY}))
_REVIVE_EVERY: Final = 60  # usage samples


@dataclass(frozen=True, slots=True)
class RawDeviceUse:
    """A usage sample of one device, without the owners of its processes.

    Attributes:
        use: the sample, without processes. Its busy time comes from GPM, and is known only for a
            MIG instance, and for a GPU while its processes are hidden.
        listed: the processes on the device; None if they cannot be listed.
        utilization: busy time of each process since the previous sample, by pid; None if it is
            unknown.
    """

    use: DeviceUse
    listed: tuple[GpuProcess, ...] | None = None
    utilization: Mapping[int, ProcessBusyTime] | None = None


class GpuSample(GpuReadings):
    """The usage samples and the errors of one visit to a GPU; the list of readings stays empty.

    Attributes:
        devices: samples of the MIG instances, then of the GPU, as far as they succeeded.
    """

    __slots__ = ("devices",)

    def __init__(self, uuid: str, at: Instant) -> None:
        super().__init__(uuid, at)
        self.devices: list[RawDeviceUse] = []


class _SampledDevice:
    """A device with the readers of its usage samples, and the time of the last sample."""

    def __init__(self, uuid: str, plan: Plan) -> None:
        self.uuid = uuid
        self.plan = plan
        self._since: Instant | None = None
        self._samples = 0

    def read(
        self, sample: GpuSample, at: Instant, *tiers: list[Reader]
    ) -> tuple[GpuReadings, Instant | None]:
        """Call the readers of some tiers; return the readings, and when the last sample was taken.

        That time is None if there is no last sample, or if it failed.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        # If this sample fails, the next one must not continue from an earlier one.
        since, self._since = self._since, None
        self._samples += 1
        if self._samples % _REVIVE_EVERY == 0:
            self.plan.revive()
        own_result = GpuReadings(self.uuid, at)
        for tier in tiers:
            self.plan.run(tier, own_result, at)
        sample.errors += own_result.errors
        if own_result or own_result.processes:
            self._since = at
        return own_result, since

    def forget(self) -> None:
        self._since = None
        self.plan.reset()


class GpuUsageSampler:
    """Takes usage samples of one open GPU; each sample continues from the last.

    Args:
        nvml: the library.
        gpu: the GPU.
        now: returns the current time.

    Attributes:
        was_down: whether the GPU was down since the last sample; the caller sets it, `sample`
            clears it.
        processes_hidden: whether the driver hides processes, so that its data about processes does
            not show how busy the GPU was; the caller sets it.
    """

    def __init__(self, nvml: Library, gpu: OpenGpu, now: Callable[[], Instant]) -> None:
        self.gpu = gpu
        self.was_down = self.processes_hidden = False
        self._now = now
        self._target = ReadTarget(nvml, gpu.handle, gpu.uuid, _WANTED, now)
        self._has_instances = self._has_gpu_profiler = False
        self._instances: dict[tuple[str, int], _SampledDevice] = {}

    def sample(self) -> GpuSample:
        """Sample the GPU and its MIG instances, as far as the option `devices` includes them.

        Raises:
            DriverGoneError: the driver is gone.
        """
        sample = GpuSample(self.gpu.uuid, self._now())
        interrupted, self.was_down = self.was_down, False
        if interrupted or not self.gpu.up:
            self._forget()
        if self.gpu.up:
            try:
                with self.gpu.visit():
                    self._sample_gpu(sample)
            except codes.DeviceLostError:
                # The next round reports it.
                self._forget()
                sample.devices.clear()
        return sample

    def _sample_gpu(self, sample: GpuSample) -> None:
        mig = self.gpu.mig
        if (mig is not None) != self._has_instances:
            # A change of MIG mode resets the GPU.
            self._has_instances = mig is not None
            self._forget()
        if mig is not None:
            self._sample_instances(mig, sample)
        if not self.gpu.is_read:
            return
        plan = self._gpu_device.plan
        if self.processes_hidden and not self._has_instances and not self._has_gpu_profiler:
            self._has_gpu_profiler = True
            plan.add(plan.slow, self._profiling.profiler(self.gpu.uuid))
        at = self._now()
        tiers = [plan.fast] if self._has_instances else [plan.fast, plan.slow]
        read, since = self._gpu_device.read(sample, at, *tiers)
        entries = None
        if not self._has_instances and since is not None:
            entries = self._utilization.scaled_to(read.at.mono_ns - since.mono_ns)
        if read or read.processes:
            sample.devices.append(replace(_raw_use(read, since, sample), utilization=entries))

    def _sample_instances(self, mig: MigInstances, sample: GpuSample) -> None:
        mig.enumerate(sample)
        present_devices: dict[tuple[str, int], _SampledDevice] = {}
        for present in mig.present_instances():
            key = (present.device.uuid, address(present.handle))
            sampled = self._instances.get(key) or self._make_device(present)
            present_devices[key] = sampled
            sampled.plan.set_shared(shared=present.shared)
            at = self._now()
            try:
                read, since = sampled.read(sample, at, sampled.plan.fast)
            except codes.DeviceLostError as lost:
                sample.errors.append(lost.code)
                sampled.forget()
                continue
            if read or read.processes:
                sample.devices.append(_raw_use(read, since, sample))
        self._instances = present_devices

    def _make_device(self, present: MigInstance) -> _SampledDevice:
        uuid, placement = present.device.uuid, present.device.mig
        target = replace(self._target, handle=present.handle, uuid=uuid)
        plan = Plan(shared(target, carries=False))
        if placement is not None:
            instance = self._profiling.profiler(uuid, placement.gpu_instance_id)
            plan.add(plan.fast, instance)
        return _SampledDevice(uuid, plan)

    # The event loop makes the sampler. The first sample makes its readers, on a worker thread:
    # pynvml's first lookup of a function waits for a lock.
    @cached_property
    def _gpu_device(self) -> _SampledDevice:
        # The slow tier has the readers that a GPU with MIG mode on lacks; both tiers always run.
        plan = Plan([])
        plan.add(plan.fast, Energy(self._target))
        plan.add(plan.slow, self._utilization)
        plan.slow += shared(self._target, carries=False)
        return _SampledDevice(self.gpu.uuid, plan)

    @cached_property
    def _utilization(self) -> Utilization:
        return Utilization(self._target.nvml, self._target.handle)

    @cached_property
    def _profiling(self) -> Profiling:
        return Profiling(self._target)

    def _forget(self) -> None:
        for sampled in (self._gpu_device, *self._instances.values()):
            sampled.forget()


def _raw_use(read: GpuReadings, since: Instant | None, sample: GpuSample) -> RawDeviceUse:
    """Create the usage sample of a GPU or an instance; add an error for impossible memory sizes."""
    values = {reading.field: int(reading.value) for reading in read if reading.field != BUSY}
    total, free = values.get(_TOTAL), values.get(_FREE)
    ratio = next((reading.value for reading in read if reading.field == BUSY), None)
    # The window of the ratio may start before the last usage sample.
    elapsed_ns = 0 if since is None else read.at.mono_ns - since.mono_ns
    use = DeviceUse(
        read.uuid,
        read.at,
        since,
        processes=(),
        # Valid for both versions of the call: `used` of version 2 excludes reserved memory.
        memory_used_bytes=None if total is None or free is None else total - free,
        memory_reserved_bytes=values.get(_RESERVED),
        busy_ns=round(ratio * elapsed_ns) if ratio is not None and elapsed_ns else None,
        energy_mj=values.get(ENERGY),
        good_for_ns=0,
    )
    listed = read.processes[0].processes if read.processes else None
    return RawDeviceUse(use, None if listed is None else _plausible(listed, total, sample))


def _plausible(
    listed: tuple[GpuProcess, ...], total: int | None, sample: GpuSample
) -> tuple[GpuProcess, ...]:
    """Return the processes; memory above that of the device becomes None and adds an error."""
    if total is None or all((one.memory_bytes or 0) <= total for one in listed):
        return listed
    sample.errors.append(codes.OUT_OF_RANGE)
    return tuple(
        replace(one, memory_bytes=None) if (one.memory_bytes or 0) > total else one
        for one in listed
    )
