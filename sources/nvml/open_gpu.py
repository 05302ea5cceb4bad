"""One physical GPU: its read plan, its MIG instances, and a visit that reads them."""

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from pipeline.model import Device
from sources.nvml import codes, read_plan, sample_statistics
from sources.nvml.composite_readers import MEMORY_FIELDS, memory
from sources.nvml.counters import pcie_counters
from sources.nvml.gpm import Profiling
from sources.nvml.mig_instances import MigInstances
from sources.nvml.nvlink_readers import Peers
from sources.nvml.reader_parts import GpuReadings, ReadingRequest, ReadTarget

_REVIVE_EVERY: Final = 10  # slow rounds


class OpenGpu:
    """A GPU that has a handle.

    It shares no buffers with other GPUs, since a thread may hang in a call for it while another
    thread reads the other GPUs.

    Attributes:
        device: the GPU.
        handle: NVML's handle, valid until NVML is initialised again.
        devices: the GPU and its MIG instances.
        up: whether the GPU responded at the last visit.
        fault_code: NVML's code for which the GPU is down; 0 while it is up.
        mig_mode: whether MIG mode is on; None if the driver failed to report it.
        mig: the MIG instances; None if MIG mode is off. Use it only within a step of this GPU.
    """

    def __init__(self, target: ReadTarget, device: Device, peers: Peers) -> None:
        self.device = device
        self.handle = target.handle
        self.up = True
        self.fault_code = codes.OK
        self.mig_mode: bool | None = False
        self._visited = False
        self._target = target
        self._now = target.now
        self._plan = plan = read_plan.for_gpu(target, peers)
        self._profiling = Profiling(target)
        plan.add(plan.fast, *sample_statistics.rings(target), self._profiling.profiler(device.uuid))
        plan.add(plan.slow, pcie_counters(target))
        fields = frozenset(MEMORY_FIELDS.values())
        self._probe = memory(replace(target, wanted=ReadingRequest(fields)))
        self._slow_rounds = 0
        self.mig: MigInstances | None = None
        unread = GpuReadings(device.uuid, self._now())
        self._update_mig_mode(unread)
        if self.mig is not None:
            self.mig.enumerate(unread)

    @property
    def uuid(self) -> str:
        """The GPU's uuid."""
        return self.device.uuid

    @property
    def is_free_to_call(self) -> bool:
        """Whether the GPU is up and no thread is in a call for it, which could hang."""
        return self.up and not self._visited

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU and its MIG instances, sorted by `Device.order`."""
        mig = self.mig  # read once: the sampling thread may change it
        return (self.device,) if mig is None else (self.device, *mig.devices)

    @property
    def is_read(self) -> bool:
        """Whether the option `devices` includes the GPU itself."""
        return self._target.wanted.choice.has_gpu(self.device.index)

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each GPU instance in the option `devices`, by its id."""
        mig = self.mig
        return {} if mig is None else mig.numbers

    @property
    def drain_due_ns(self) -> float:
        """When `drain` must be called unless a round comes first, by the monotonic clock.

        Infinite if it need not be called.
        """
        if not self.is_read:
            return math.inf
        return min((ring.due_ns for ring in self._plan.rings), default=math.inf)

    def drain(self) -> None:
        """Read the driver's own samples of this GPU that the driver would soon overwrite.

        Raises:
            DriverGoneError: the driver is gone.
        """
        now_ns = self._now().mono_ns
        with self.visit():
            for ring in self._plan.rings:
                if ring.due_ns <= now_ns:
                    # The next round finds any other fault too.
                    codes.check_driver(ring.drain())

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Mark in this context that a thread calls the driver for this GPU."""
        self._visited = True
        try:
            yield
        finally:
            self._visited = False

    def read(self, *, slow: bool) -> GpuReadings:
        """Read the fast tier and the MIG instances, and with `slow` the slow tier too.

        Raises:
            DriverGoneError: the driver is gone.
        """
        self.fault_code = codes.OK
        result = self._visit(partial(self._read, slow=slow))
        self.up = result.up
        return result

    def read_forced(self) -> GpuReadings:
        """Read only energy and utilisation, because the holders of a device of this GPU changed.

        Raises:
            DriverGoneError: the driver is gone.
        """
        forced = self._plan.forced if self.is_read else []
        return self._visit(lambda result: self._plan.run(forced, result, result.at))

    def _visit(self, read: Callable[[GpuReadings], object]) -> GpuReadings:
        result = GpuReadings(self.uuid, self._now())
        with self.visit():
            try:
                read(result)
            except codes.DeviceLostError as lost:
                self._mark_down(result, lost.code)
        return result

    def _read(self, result: GpuReadings, *, slow: bool) -> None:
        plan = self._plan
        revive = False
        if slow:
            revive = self._slow_rounds % _REVIVE_EVERY == _REVIVE_EVERY - 1
            self._slow_rounds += 1
            if self._slow_rounds > 1:
                self._update_mig_mode(result)
                result.at = self._now()
        if revive:
            plan.revive()
        mig, at = self.mig, result.at
        # Before the GPU itself, whose list of processes omits those of its instances.
        if mig is not None:
            mig.enumerate(result)
            mig.read(result, at, revive=revive)
            at = self._now()
        if not self.is_read:
            return
        alive = plan.run(plan.fast, result, at)
        if slow:
            alive |= plan.run(plan.slow, result, self._now())
        if not alive:
            # Any call shows whether the GPU responds.
            code = self._probe(GpuReadings("", at), at)
            codes.check(code)
            if code not in codes.ALIVE | {codes.FUNCTION_NOT_FOUND}:
                self._mark_down(result, code)
        if self._target.wanted.choice.flexible and mig is not None and mig.devices:
            # The instances have these readings too, and each is reported once.
            of_instances, uuid = read_plan.OF_INSTANCES, self.uuid
            result[:] = [r for r in result if r.device != uuid or r.field not in of_instances]
            result.processes[:] = [listed for listed in result.processes if listed.device != uuid]

    def _mark_down(self, result: GpuReadings, code: int) -> None:
        """Mark the GPU as down and drop all readings: those of such a GPU are not reliable."""
        result.clear()
        result.processes.clear()
        result.errors = [code] if code in codes.LOST else result.errors
        result.up, self.fault_code = False, code
        self._plan.reset()
        if self.mig is not None:
            self.mig.reset()

    def _update_mig_mode(self, result: GpuReadings) -> None:
        """Read whether MIG mode is on. The call takes over 100 us; a change resets the GPU."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        target = self._target
        code = target.bind("nvmlDeviceGetMigMode", ctypes.byref(current), ctypes.byref(pending))()
        if code in codes.NO_READING:
            self.mig, self.mig_mode = None, False
        elif code:
            self.mig_mode = None
            codes.check(code)
            result.errors.append(code)
        elif not current.value:
            if self.mig is not None:
                self._reset_after_mode_change()
            self.mig, self.mig_mode = None, False
        elif self.mig is None:
            self.mig_mode = True
            self.mig = MigInstances(target, self.device, self._profiling)
            self._reset_after_mode_change()

    def _reset_after_mode_change(self) -> None:
        """Reset the readers: a change of MIG mode resets the GPU and its counters."""
        self._plan.revive()
        self._plan.reset()
