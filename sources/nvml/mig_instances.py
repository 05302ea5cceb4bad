"""The MIG instances of a GPU, enumerated anew each round."""

import ctypes
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from pipeline.model import Device, Instant, MigPlace
from sources.nvml import codes, library
from sources.nvml import read_plan as plan
from sources.nvml.device_filter import instance_numbers
from sources.nvml.gpm import Profiling
from sources.nvml.library import Handle, Library
from sources.nvml.read_plan import Plan, ReadingRequest
from sources.nvml.readers import GpuReadings

_PROFILE: Final = re.compile(r"\bMIG (\S+)$")
_PART: Final = re.compile(r"\d+c\.")  # how the profile of part of a GPU instance begins
_EMPTY_SLOT: Final = frozenset({codes.NOT_FOUND, codes.INVALID_ARGUMENT, codes.NOT_SUPPORTED})

_Key = tuple[str, int, int]


@dataclass(slots=True)
class _Slot:
    """What stands at one of the GPU's MIG indexes. `handle` is None while it can't be had."""

    key: _Key
    device: Device
    plan: Plan
    box: Handle
    handle: int | None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """An instance that was enumerated and chosen.

    Attributes:
        device: the instance.
        handle: of this enumeration: good until the next.
        shared: whether others work on its GPU instance, or may: its counters are those of all.
    """

    device: Device
    handle: Handle
    shared: bool


class MigInstances:
    """The instances of one GPU with MIG mode on.

    A partition can change at any moment, and a handle of one that is gone may come to mean another.
    So each round asks for the handles anew, by index, and goes by uuid, GI and CI.

    Attributes:
        devices: the instances, in their order.
        numbers: the numbers of the GPU instances, by id.
    """

    def __init__(
        self,
        nvml: Library,
        handle: Handle,
        parent: Device,
        wanted: ReadingRequest,
        profiling: Profiling,
    ) -> None:
        self._nvml = nvml
        self._gpu = handle
        self._parent = parent
        self._wanted = wanted
        self._profiling = profiling
        self._slots: list[_Slot | None] = []
        self._handle = library.handle_box()
        self._text = library.text_buffer()
        self._gi, self._ci = ctypes.c_uint(), ctypes.c_uint()
        self.devices: tuple[Device, ...] = ()
        self.numbers: dict[int, int] = {}
        # An attribute, since an error may end an enumeration between its start and its end.
        self._changed = False
        self._new_slots = False
        self._by_index = nvml.function("nvmlDeviceGetMigDeviceHandleByIndex")
        self._uuid = nvml.function("nvmlDeviceGetUUID")
        self._gi_of = nvml.function("nvmlDeviceGetGpuInstanceId")
        self._ci_of = nvml.function("nvmlDeviceGetComputeInstanceId")

    def enumerate(self, sheet: GpuReadings) -> None:
        """Find out which instances there are.

        Raises:
            DeviceLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        if not self._slots:
            code, most = self._nvml.number("nvmlDeviceGetMaxMigDeviceCount", self._gpu)
            codes.check(code)
            self._slots = [None] * (most if code == 0 else 0)
        self._new_slots = False
        for index, before in enumerate(self._slots):
            code, key = self._read_index(index)
            if code == codes.OK and key is not None:
                where = library.address(self._handle)
                if before is None or before.key != key or before.handle != where:
                    slot = self._made(key, index)
                    self._changed |= before is None or before.device != slot.device
                    self._slots[index] = slot
            elif code in _EMPTY_SLOT:
                self._changed |= before is not None
                self._slots[index] = None
            else:
                codes.check(code)
                # It may well be there still: it keeps its place, and is not read this time.
                if code not in codes.NO_READING:
                    sheet.errors.append(code)
                if before is None:
                    self._new_slots = True
                else:
                    before.handle = None
        if self._changed:
            self._changed = False
            self.devices = tuple(
                sorted((slot.device for slot in self._slots if slot), key=lambda d: d.order)
            )
            places = [device.mig for device in self.devices if device.mig is not None]
            self.numbers = instance_numbers(
                self._parent.index or 0,
                len(self._slots),
                [(place.gpu_instance_id, place.profile) for place in places],
            )

    def read(self, sheet: GpuReadings, at: Instant, *, revive: bool) -> None:
        """Read the instances that were chosen; what fails on one costs the others nothing.

        Raises:
            DriverGoneError: the driver is gone.
        """
        has_instance = self._wanted.choice.has_instance
        sharing = self._sharing()
        for slot in self._slots:
            if slot is None:
                continue
            if slot.plan.profiler is not None:
                slot.plan.profiler.set_shared(shared=self._shares(slot, sharing))
            if slot.handle is None or not has_instance(self.numbers[slot.key[1]]):
                continue
            if revive:
                slot.plan.revive()
            try:
                slot.plan.run(slot.plan.fast, sheet, at)
            except codes.DeviceLostError as lost:
                sheet.errors.append(lost.code)

    def present_instances(self) -> list[MigInstance]:
        """Return the instances that can be asked now and were chosen, as last enumerated."""
        has_instance = self._wanted.choice.has_instance
        sharing = self._sharing()
        return [
            MigInstance(slot.device, slot.box, self._shares(slot, sharing))
            for slot in self._slots
            if slot is not None and slot.handle is not None
            if has_instance(self.numbers[slot.key[1]])
        ]

    def reset(self) -> None:
        """Have all instances start anew: the GPU was away."""
        for slot in self._slots:
            if slot is not None:
                slot.plan.reset()

    def _sharing(self) -> Counter[int]:
        """Count the instances on each GPU instance."""
        return Counter(slot.key[1] for slot in self._slots if slot is not None)

    def _shares(self, slot: _Slot, sharing: Counter[int]) -> bool:
        """Whether others work on the slot's GPU instance: its counters are those of all of them."""
        if sharing[slot.key[1]] > 1:
            return True
        # One that can't be seen may be on it, unless it has the whole instance to itself.
        place = slot.device.mig
        return self._new_slots and place is not None and bool(_PART.match(place.profile))

    def _read_index(self, index: int) -> tuple[int, _Key | None]:
        """Fetch the handle at an index, and what it stands for."""
        by_index, uuid, gi_of, ci_of = self._by_index, self._uuid, self._gi_of, self._ci_of
        if by_index is None or uuid is None or gi_of is None or ci_of is None:
            return codes.NOT_FOUND, None
        handle, text = library.handle_box(), self._text
        code = (
            by_index(self._gpu, ctypes.c_uint(index), ctypes.byref(handle))
            or uuid(handle, text, ctypes.c_uint(len(text)))
            or gi_of(handle, ctypes.byref(self._gi))
            or ci_of(handle, ctypes.byref(self._ci))
        )
        self._handle = handle
        if code:
            return code, None
        return code, (library.decoded(text), self._gi.value, self._ci.value)

    def _made(self, key: _Key, index: int) -> _Slot:
        uuid, gi, ci = key
        parent = self._parent
        device = Device(
            uuid,
            parent.index,
            parent.minor,
            parent.pci_bus_id,
            parent.model,
            parent.driver,
            MigPlace(parent.uuid, gi, ci, self._profile(), index, self._start(gi)),
            parent.facts,
        )
        compiled = plan.for_mig(self._nvml, self._handle, uuid, self._wanted)
        compiled.add(self._profiling.instance(uuid, gi))
        return _Slot(key, device, compiled, self._handle, library.address(self._handle))

    def _start(self, gi: int) -> int | None:
        """Return the GPU instance's first memory slice; None where the driver doesn't say."""
        code, start = self._nvml.first_slice(self._gpu, gi)
        codes.check_driver(code)
        return start if code == 0 else None

    def _profile(self) -> str:
        """Return the profile's name: from the instance's own name, else from its size."""
        code, name = self._nvml.text("nvmlDeviceGetName", self._handle)
        codes.check(code)
        if code == 0 and (match := _PROFILE.search(name)):
            return match[1]
        code, size = self._nvml.attributes(self._handle)
        codes.check(code)
        if code or not size.gpuInstanceSliceCount:
            return ""
        whole = f"{size.gpuInstanceSliceCount}g.{math.ceil(size.memorySizeMB / 1024)}gb"
        if size.computeInstanceSliceCount in (0, size.gpuInstanceSliceCount):
            return whole
        return f"{size.computeInstanceSliceCount}c.{whole}"
