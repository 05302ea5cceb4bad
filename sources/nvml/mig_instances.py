"""The MIG instances of a GPU, enumerated again in each round."""

import ctypes
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from pipeline.model import Device, Instant, MigPlace
from sources.nvml import codes, library
from sources.nvml.device_filter import instance_numbers
from sources.nvml.gpm import Profiling
from sources.nvml.library import Handle
from sources.nvml.read_plan import Plan, shared
from sources.nvml.reader_parts import GpuReadings, ReadTarget

_PROFILE: Final = re.compile(r"\bMIG (\S+)$")
_PART: Final = re.compile(r"\d+c\.")  # prefix of the profile of a part of a GPU instance
_EMPTY_SLOT: Final = codes.UNSUPPORTED | {codes.NOT_FOUND, codes.INVALID_ARGUMENT}

_Key = tuple[str, int, int]


@dataclass(slots=True)
class MigInstance:
    """The instance at one of the GPU's MIG indexes.

    Attributes:
        key: uuid, GI number and CI number.
        device: the instance.
        plan: its readers.
        handle: NVML's handle of the instance, valid until the next enumeration.
        address: the memory address in the handle; None while the handle cannot be fetched.
        shared: whether its GPU instance has, or may have, other instances. Then the counters of
            the GPU instance cover all of them.
    """

    key: _Key
    device: Device
    plan: Plan
    handle: Handle
    address: int | None
    shared: bool = False


class MigInstances:
    """The instances of one GPU with MIG mode on.

    The partition can change at any moment, and the handle of a removed instance may later belong to
    another instance. So each round fetches the handles by index and compares uuid, GI and CI.

    Attributes:
        devices: the instances, sorted by `Device.order`.
        numbers: number of each GPU instance in the option `devices`, by its id.
    """

    def __init__(self, target: ReadTarget, parent: Device, profiling: Profiling) -> None:
        self._target = target
        self._nvml = target.nvml
        self._gpu = target.handle
        self._parent = parent
        self._has_instance = target.wanted.choice.has_instance
        self._profiling = profiling
        self._slots: list[MigInstance | None] = []
        self.devices: tuple[Device, ...] = ()
        self.numbers: dict[int, int] = {}

    def enumerate(self, result: GpuReadings) -> None:
        """Enumerate the instances and update `devices` and `numbers`.

        Raises:
            DeviceLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        if not self._slots:
            code, limit = self._nvml.number("nvmlDeviceGetMaxMigDeviceCount", self._gpu)
            codes.check(code)
            self._slots = [None] * (limit if code == 0 else 0)
        has_unknown = False
        for index, before in enumerate(self._slots):
            code, key = self._read_index(index)
            if code == codes.OK and key is not None:
                address_now = library.address(self._handle)
                if before is None or before.key != key or before.address != address_now:
                    self._slots[index] = self._make_slot(key, index)
            elif code in _EMPTY_SLOT:
                self._slots[index] = None
            else:
                codes.check(code)
                # The instance may still exist: it stays in its slot and is not read this time.
                if code not in codes.NO_READING:
                    result.errors.append(code)
                if before is None:
                    has_unknown = True
                else:
                    before.address = None
        slots = [slot for slot in self._slots if slot is not None]
        devices = tuple(sorted((slot.device for slot in slots), key=lambda device: device.order))
        if devices != self.devices:
            self.devices = devices
            self.numbers = instance_numbers(
                self._parent.index or 0,
                len(self._slots),
                [(place.gpu_instance_id, place.profile) for d in devices if (place := d.mig)],
            )
        per_gpu_instance = Counter(slot.key[1] for slot in slots)
        for slot in slots:
            # An instance that cannot be enumerated may be on it, unless this one is the whole of
            # it.
            place = slot.device.mig
            is_part = place is not None and _PART.match(place.profile) is not None
            slot.shared = per_gpu_instance[slot.key[1]] > 1 or (has_unknown and is_part)
            slot.plan.set_shared(shared=slot.shared)

    def read(self, result: GpuReadings, at: Instant, *, revive: bool) -> None:
        """Read the instances that the option `devices` includes.

        A failure of one instance does not affect the others.

        Raises:
            DriverGoneError: the driver is gone.
        """
        for slot in self.present_instances():
            if revive:
                slot.plan.revive()
            try:
                slot.plan.run(slot.plan.fast, result, at)
            except codes.DeviceLostError as lost:
                result.errors.append(lost.code)

    def present_instances(self) -> list[MigInstance]:
        """Return the instances of the option `devices` whose handle was fetched last time."""
        return [
            slot
            for slot in self._slots
            if slot is not None and slot.address is not None
            if self._has_instance(self.numbers[slot.key[1]])
        ]

    def reset(self) -> None:
        """Reset the readers of all instances that keep state: the GPU was down."""
        for slot in self._slots:
            if slot is not None:
                slot.plan.reset()

    def _read_index(self, index: int) -> tuple[int, _Key | None]:
        """Fetch the handle at an index; return NVML's code, and the instance's uuid, GI and CI."""
        nvml, handle = self._nvml, library.Device()
        name = "nvmlDeviceGetMigDeviceHandleByIndex"
        self._handle = handle
        if code := nvml.call(name, self._gpu, ctypes.c_uint(index), ctypes.byref(handle)):
            return code, None
        code, uuid = nvml.text("nvmlDeviceGetUUID", handle)
        gi_code, gi = nvml.number("nvmlDeviceGetGpuInstanceId", handle)
        ci_code, ci = nvml.number("nvmlDeviceGetComputeInstanceId", handle)
        code = code or gi_code or ci_code
        return code, None if code else (uuid, gi, ci)

    def _make_slot(self, key: _Key, index: int) -> MigInstance:
        uuid, gi, ci = key
        parent = self._parent
        code, start = self._nvml.first_slice(self._gpu, gi)
        codes.check_driver(code)
        first_slice = start if code == codes.OK else None
        place = MigPlace(parent.uuid, gi, ci, self._profile(), index, first_slice)
        device = replace(parent, uuid=uuid, mig=place)
        target = replace(self._target, handle=self._handle, uuid=uuid)
        plan = Plan(shared(target, carries=False))
        plan.add(plan.fast, self._profiling.profiler(uuid, gi))
        return MigInstance(key, device, plan, self._handle, library.address(self._handle))

    def _profile(self) -> str:
        """Return the profile from the instance's name, else from its size; empty if unknown."""
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
