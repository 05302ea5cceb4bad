"""One physical GPU: its read plan, its MIG instances, and a visit that reads them."""

import ctypes
import math
from collections.abc import Callable
from typing import Final, TypeVar

from pipeline.model import Device, Instant
from sources.nvml import codes, pcie_counters, read_plan, sample_statistics
from sources.nvml.gpm import MIN_VALIDITY_NS, Profiling
from sources.nvml.library import Handle, Library
from sources.nvml.mig_instances import MigInstances
from sources.nvml.nvlink_peers import Peers
from sources.nvml.read_plan import ReadingRequest
from sources.nvml.readers import GpuReadings
from sources.nvml.slow_readers import readers_of

_REVIVE_EVERY: Final = 10  # slow rounds

T = TypeVar("T")


class Gpu:
    """A GPU that has a handle.

    It shares no buffers with other GPUs, since a thread may hang in it while another thread reads
    the rest.

    Attributes:
        device: the GPU.
        handle: of this initialisation of NVML.
        devices: the GPU and its MIG instances.
        up: whether the GPU responded at the last visit.
        fault_code: NVML's code for which it is down; 0 while it is up.
        mig_mode: whether MIG mode is on; None if the driver failed to report it.
    """

    def __init__(
        self,
        nvml: Library,
        handle: Handle,
        device: Device,
        wanted: ReadingRequest,
        now: Callable[[], Instant],
        *,
        peers: Peers = dict,
    ) -> None:
        self.device = device
        self.handle = handle
        self.up = True
        self.fault_code = codes.OK
        self.mig_mode: bool | None = False
        self._visited = False
        self._nvml = nvml
        self._wanted = wanted
        self._now = now
        self._plan = read_plan.for_gpu(nvml, handle, device.uuid, wanted)
        valid_ns = max(wanted.fast_valid_ns, MIN_VALIDITY_NS)
        self._profiling = Profiling(nvml, handle, wanted.fields, valid_ns, now)
        target = (device.uuid, wanted.fast_valid_ns)
        self._plan.add(
            self._profiling.gpu(device.uuid),
            sample_statistics.rings(
                nvml, handle, target, wanted.fields, window_ns=wanted.window_ns, now=now
            ),
        )
        self._plan.add_slow(
            readers_of(nvml, handle, device.uuid, wanted, peers),
            pcie_counters.counters(
                nvml,
                handle,
                (device.uuid, wanted.slow_valid_ns),
                wanted.fields,
                totals=wanted.pcie_totals,
                now=now,
            ),
        )
        self._probe = read_plan.probe(nvml, handle)
        self._slow_rounds = 0
        self._mig: MigInstances | None = None
        unread = GpuReadings(device.uuid, now())
        self._update_mig_mode(unread)
        if self._mig is not None:
            self._mig.enumerate(unread)

    @property
    def uuid(self) -> str:
        """The GPU's uuid."""
        return self.device.uuid

    @property
    def is_idle(self) -> bool:
        """Whether it is up and no thread is in the driver with it; such a thread may hang."""
        return self.up and not self._visited

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU and its MIG instances, in their order."""
        mig = self._mig  # read once: the sampling thread may change it
        return (self.device,) if mig is None else (self.device, *mig.devices)

    @property
    def is_read(self) -> bool:
        """Whether the option `devices` includes the GPU itself."""
        return self._wanted.choice.has_gpu(self.device.index)

    @property
    def mig(self) -> MigInstances | None:
        """The MIG instances, for a step of this GPU; None if MIG mode is off."""
        return self._mig

    @property
    def numbers(self) -> dict[int, int]:
        """The numbers of the GPU instances by id, as the option `devices` uses them."""
        mig = self._mig
        return {} if mig is None else mig.numbers

    @property
    def drain_due_ns(self) -> float:
        """When `drain` has to be called, unless a round comes first; infinite for never."""
        if not self.is_read:
            return math.inf
        return min((ring.due_ns for ring in self._plan.rings), default=math.inf)

    def drain(self) -> None:
        """Read the driver's own samples that it would soon overwrite.

        Raises:
            DriverGoneError: the driver is gone.
        """
        now_ns = self._now().mono_ns
        self._visited = True
        try:
            for ring in self._plan.rings:
                if ring.due_ns <= now_ns:
                    # The next round finds any other fault too.
                    codes.check_driver(ring.drain())
        finally:
            self._visited = False

    def query(self, call: Callable[[], T]) -> T:
        """Call the driver, and mark meanwhile that a thread is in it with this GPU."""
        self._visited = True
        try:
            return call()
        finally:
            self._visited = False

    def read(self, *, slow: bool) -> GpuReadings:
        """Read the fast tier and the MIG instances, and with `slow` the slow tier too.

        Raises:
            DriverGoneError: the driver is gone.
        """
        result = GpuReadings(self.uuid, self._now())
        self._visited, self.fault_code = True, codes.OK
        try:
            self._read(result, slow=slow)
        except codes.DeviceLostError as lost:
            self._mark_down(result, lost.code)
        finally:
            self._visited = False
        self.up = result.up
        return result

    def read_forced(self) -> GpuReadings:
        """Read only energy and utilisation.

        Raises:
            DriverGoneError: the driver is gone.
        """
        result = GpuReadings(self.uuid, self._now())
        if not self.is_read:
            return result
        self._visited = True
        try:
            self._plan.run(self._plan.forced, result, result.at)
        except codes.DeviceLostError as lost:
            self._mark_down(result, lost.code)
        finally:
            self._visited = False
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
        mig, at = self._mig, result.at
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
            code = self._probe()
            codes.check(code)
            if code not in codes.ALIVE:
                self._mark_down(result, code)
        if self._wanted.choice.flexible and mig is not None and mig.devices:
            self._drop_readings_of_instances(result)

    def _drop_readings_of_instances(self, result: GpuReadings) -> None:
        """Drop readings of the GPU that its MIG instances have too: each is reported once."""
        uuid = self.uuid
        result[:] = [r for r in result if r.device != uuid or r.field not in read_plan.OF_INSTANCES]
        result.processes[:] = [listed for listed in result.processes if listed.device != uuid]

    def _mark_down(self, result: GpuReadings, code: int) -> None:
        """Drop all readings: those of a GPU that is down are not reliable."""
        result.clear()
        result.processes.clear()
        result.errors = [code] if code in codes.LOST else result.errors
        result.up, self.fault_code = False, code
        self._plan.reset()
        if self._mig is not None:
            self._mig.reset()

    def _update_mig_mode(self, result: GpuReadings) -> None:
        """Read whether MIG mode is on. The call takes over 100 us; a change needs an idle GPU."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._nvml.call(
            "nvmlDeviceGetMigMode", self.handle, ctypes.byref(current), ctypes.byref(pending)
        )
        if code in codes.NO_READING:
            self._mig, self.mig_mode = None, False
        elif code:
            self.mig_mode = None
            codes.check(code)
            result.errors.append(code)
        elif not current.value:
            if self._mig is not None:
                self._reset_after_mode_change()
            self._mig, self.mig_mode = None, False
        elif self._mig is None:
            self.mig_mode = True
            self._mig = MigInstances(
                self._nvml, self.handle, self.device, self._wanted, self._profiling
            )
            self._reset_after_mode_change()

    def _reset_after_mode_change(self) -> None:
        """Start from zero: a change of MIG mode resets the GPU and its counters."""
        self._plan.revive()
        self._plan.reset()
