"""One physical GPU, opened: its plan, its MIG instances, and a visit to it."""

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

    All its buffers are its own, since a thread may stay stuck in it while another reads the rest.

    Attributes:
        device: the GPU.
        handle: of this initialisation of NVML.
        devices: the GPU and its MIG instances.
        up: how the last visit ended.
        fault_code: NVML's code for which it is down; 0 while it is up.
        mig_mode: whether MIG mode is on; None if the driver failed to say.
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
        good = max(wanted.fast_good_ns, MIN_VALIDITY_NS)
        self._profiling = Profiling(nvml, handle, wanted.fields, good, now)
        target = (device.uuid, wanted.fast_good_ns)
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
                (device.uuid, wanted.slow_good_ns),
                wanted.fields,
                totals=wanted.pcie_totals,
                now=now,
            ),
        )
        self._probe = read_plan.probe(nvml, handle)
        self._slow_rounds = 0
        self._mig: MigInstances | None = None
        unread = GpuReadings(device.uuid, now())
        self._follow_mig_mode(unread)
        if self._mig is not None:
            self._mig.enumerate(unread)

    @property
    def uuid(self) -> str:
        """The GPU's uuid."""
        return self.device.uuid

    @property
    def is_idle(self) -> bool:
        """Whether it is up and no thread is in the driver with it, perhaps never to come back."""
        return self.up and not self._visited

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPU and its MIG instances, in their order."""
        mig = self._mig  # once: the sampling thread may be about to change it
        return (self.device,) if mig is None else (self.device, *mig.devices)

    @property
    def is_read(self) -> bool:
        """Whether the GPU itself is among the devices that were chosen."""
        return self._wanted.choice.has_gpu(self.device.index)

    @property
    def mig(self) -> MigInstances | None:
        """The MIG instances, for who is in the driver with this GPU; None with MIG mode off."""
        return self._mig

    @property
    def numbers(self) -> dict[int, int]:
        """The numbers of the GPU instances, by id: those that the option `devices` means."""
        mig = self._mig
        return {} if mig is None else mig.numbers

    @property
    def drain_due_ns(self) -> float:
        """When `drain` has to be called; infinite for never, unless a round is read first."""
        if not self.is_read:
            return math.inf
        return min((ring.due_ns for ring in self._plan.rings), default=math.inf)

    def drain(self) -> None:
        """Take the driver's own samples where they would soon be lost.

        Raises:
            DriverGoneError: the driver is gone.
        """
        now_ns = self._now().mono_ns
        self._visited = True
        try:
            for ring in self._plan.rings:
                if ring.due_ns <= now_ns:
                    # What else is wrong, the next round finds too.
                    codes.check_driver(ring.drain())
        finally:
            self._visited = False

    def query(self, call: Callable[[], T]) -> T:
        """Ask the driver something, while others see that somebody is in it with this GPU."""
        self._visited = True
        try:
            return call()
        finally:
            self._visited = False

    def read(self, *, slow: bool) -> GpuReadings:
        """Read the fast tier and the MIG instances, and the slow tier too if asked to.

        Raises:
            DriverGoneError: the driver is gone.
        """
        sheet = GpuReadings(self.uuid, self._now())
        self._visited, self.fault_code = True, codes.OK
        try:
            self._read(sheet, slow=slow)
        except codes.DeviceLostError as lost:
            self._mark_down(sheet, lost.code)
        finally:
            self._visited = False
        self.up = sheet.up
        return sheet

    def read_forced(self) -> GpuReadings:
        """Read energy and utilisation alone.

        Raises:
            DriverGoneError: the driver is gone.
        """
        sheet = GpuReadings(self.uuid, self._now())
        if not self.is_read:
            return sheet
        self._visited = True
        try:
            self._plan.run(self._plan.forced, sheet, sheet.at)
        except codes.DeviceLostError as lost:
            self._mark_down(sheet, lost.code)
        finally:
            self._visited = False
        return sheet

    def _read(self, sheet: GpuReadings, *, slow: bool) -> None:
        own = self._plan
        revive = False
        if slow:
            revive = self._slow_rounds % _REVIVE_EVERY == _REVIVE_EVERY - 1
            self._slow_rounds += 1
            if self._slow_rounds > 1:
                self._follow_mig_mode(sheet)
                sheet.at = self._now()
        if revive:
            own.revive()
        mig, at = self._mig, sheet.at
        # Before the GPU itself, whose list of processes leaves out those of its instances.
        if mig is not None:
            mig.enumerate(sheet)
            mig.read(sheet, at, revive=revive)
            at = self._now()
        if not self.is_read:
            return
        alive = own.run(own.fast, sheet, at)
        if slow:
            alive |= own.run(own.slow, sheet, self._now())
        if not alive:
            code = self._probe()
            codes.check(code)
            if code not in codes.ALIVE:
                self._mark_down(sheet, code)
        if self._wanted.choice.flexible and mig is not None and mig.devices:
            self._drop_instance_readings(sheet)

    def _drop_instance_readings(self, sheet: GpuReadings) -> None:
        """Leave out of the GPU what its instances tell: each thing is to be told once."""
        uuid = self.uuid
        sheet[:] = [r for r in sheet if r.device != uuid or r.field not in read_plan.OF_INSTANCES]
        sheet.processes[:] = [listed for listed in sheet.processes if listed.device != uuid]

    def _mark_down(self, sheet: GpuReadings, code: int) -> None:
        """A GPU that is down says nothing: what it still answered may be anything."""
        sheet.clear()
        sheet.processes.clear()
        sheet.errors = [code] if code in codes.LOST else sheet.errors
        sheet.up, self.fault_code = False, code
        self._plan.reset()
        if self._mig is not None:
            self._mig.reset()

    def _follow_mig_mode(self, sheet: GpuReadings) -> None:
        """See whether MIG mode is on. It costs over 100 us and needs an idle GPU to change."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._nvml.ask(
            "nvmlDeviceGetMigMode", self.handle, ctypes.byref(current), ctypes.byref(pending)
        )
        if code in codes.NO_READING:
            self._mig, self.mig_mode = None, False
        elif code:
            self.mig_mode = None
            codes.check(code)
            sheet.errors.append(code)
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
        """The GPU was reset to be cut, or to be whole: it gives other readings, and counts anew."""
        self._plan.revive()
        self._plan.reset()
