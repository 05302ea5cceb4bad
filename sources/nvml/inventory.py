"""The inventory: which GPUs the driver enumerates, and their MIG instances."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pipeline.fields.label_fields import number_of
from pipeline.model import Device, Instant
from sources.nvml import codes, read_plan
from sources.nvml.library import Handle, Library, address
from sources.nvml.open_gpu import OpenGpu
from sources.nvml.reader_parts import ReadingRequest, ReadTarget
from sources.nvml.worker_pool import Step, Steps

INIT: Final = "nvmlInit"
COUNT: Final = "nvmlDeviceGetCount"

_Open: TypeAlias = dict[int, OpenGpu]
_Closed: TypeAlias = dict[int, tuple[Device, ...]]

Facts: TypeAlias = tuple[tuple[str, str], ...]

T = TypeVar("T")
M = TypeVar("M")

_COUNT_SYMBOLS: Final = ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")

_TEXTS: Final = (
    ("name", "nvmlDeviceGetName"),
    ("serial", "nvmlDeviceGetSerial"),
    ("part_number", "nvmlDeviceGetBoardPartNumber"),
    ("vbios_version", "nvmlDeviceGetVbiosVersion"),
    ("inforom_image_version", "nvmlDeviceGetInforomImageVersion"),
    ("gsp_firmware_version", "nvmlDeviceGetGspFirmwareVersion"),
)
_PROCESS_NAME: Final = "process_name"
_INFOROM: Final = ("inforom_oem_version", "inforom_ecc_version", "inforom_power_version")

# By nvmlBrandType_t; the texts are DCGM's.
_BRANDS: Final = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA vGaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}


class Inventory:
    """The GPUs of one initialisation of NVML, by index.

    While the sampling thread runs, only that thread changes the inventory. The event loop may read
    `gpus`, `closed` and `devices` at any time: both dictionaries are replaced together and never
    changed.

    Args:
        nvml: the library.
        wanted: what to read.
        now: returns the current time.
        remembered: devices of an earlier run by index, for GPUs that cannot be opened yet.

    Attributes:
        errors: errors that the caller has not yet taken: uuid or name of a GPU, or an empty text
            for the driver; and NVML's code.
    """

    def __init__(
        self,
        nvml: Library,
        wanted: ReadingRequest,
        now: Callable[[], Instant],
        remembered: Mapping[int, tuple[Device, ...]],
    ) -> None:
        self._nvml = nvml
        self._wanted = wanted
        self._now = now
        self._driver: Facts = ()
        self._count = -1
        self._devices: tuple[Device, ...] = ()
        self._current: tuple[_Open, _Closed] = ({}, dict(remembered))
        self.errors: list[tuple[str, int]] = []
        self._count_code = codes.OK
        self._unopened: dict[int, int] = {}

    @property
    def gpus(self) -> _Open:
        """The open GPUs by index; the same object until the GPUs are scanned again."""
        return self._current[0]

    @property
    def closed(self) -> _Closed:
        """The known devices by index, for each index whose GPU cannot be opened now."""
        return self._current[1]

    @property
    def devices(self) -> tuple[Device, ...]:
        """All known devices, sorted by `Device.order`; the same tuple until a device changes."""
        gpus, closed = self._current
        groups = [*(gpu.devices for gpu in gpus.values()), *closed.values()]
        found = (device for group in groups for device in group)
        devices = tuple(sorted(found, key=lambda device: device.order))
        if devices != self._devices:
            self._devices = devices
        return self._devices

    @property
    def by_index(self) -> dict[int, tuple[Device, ...]]:
        """The known devices by index: the GPU and its MIG instances."""
        gpus, closed = self._current
        return {**closed, **{index: gpu.devices for index, gpu in gpus.items()}}

    def contradiction(self) -> str:
        """Return why devices of the option `devices` do not exist; empty if all may exist."""
        gpus = self.gpus
        modes = {gpu.mig_mode for gpu in gpus.values()}
        is_complete = len(gpus) == self._count and None not in modes
        any_mig = True in modes if is_complete else None
        numbers = (number for gpu in gpus.values() for number in gpu.numbers.values())
        return self._wanted.choice.conflict_with_node(self._count, numbers, any_mig=any_mig)

    @property
    def has_failures(self) -> bool:
        """Whether a GPU is down or could not be opened, so that opening it again may help."""
        return len(self.gpus) < self._count or not all(gpu.up for gpu in self.gpus.values())

    @property
    def count_unknown(self) -> bool:
        """Whether the driver reports "unknown" instead of the number of GPUs."""
        return self._count_code == codes.UNKNOWN

    @property
    def all_unknown(self) -> bool:
        """Whether all GPUs that are read report only "unknown".

        The driver does so if this process lost access to the devices. A GPU that is lost, or that
        reports another code, has a separate fault.
        """
        gpus = self.gpus
        faults = [gpu.fault_code for gpu in gpus.values() if gpu.is_read]
        faults += [code for index, code in self._unopened.items() if index not in gpus]
        if not all(gpu.is_read for gpu in gpus.values()):
            # The other GPUs are not read, so their state shows only in the count.
            faults.append(self._count_code)
        return all(code == codes.UNKNOWN for code in faults or [self._count_code])

    def find(self, uuids: Iterable[str]) -> list[OpenGpu]:
        """Return the GPUs with these uuids, or with MIG instances that have them."""
        wanted = frozenset(uuids)
        return [
            gpu
            for gpu in self.gpus.values()
            if any(device.uuid in wanted for device in gpu.devices)
        ]

    def open_steps(self) -> Steps:
        """Yield the steps that initialise NVML, read the driver's version, and open every GPU."""
        self._driver = yield Step(INIT, self._open, is_critical=True)
        yield from self._scan_steps(rescan=True, is_critical=True)

    def read_steps(self, *, slow: bool, rescan: bool) -> Steps:
        """Yield the steps that count the GPUs, open them if required, and read each open one."""
        yield from self._scan_steps(rescan=rescan, is_critical=False)
        for gpu in self.gpus.values():
            yield Step(gpu.uuid, partial(gpu.read, slow=slow))

    def _scan_steps(self, *, rescan: bool, is_critical: bool) -> Steps:
        count = yield Step(COUNT, self._read_count, is_critical, is_collected=False)
        if count is None or (count == self._count and not rescan):
            return
        self._count, self._unopened = count, {}
        opened: dict[int, OpenGpu | Device] = {}
        for index in range(count):
            target = self._target_name(index)
            found = yield Step(target, partial(self._open_gpu, index), is_collected=False)
            if found is not None:
                opened[index] = found
        self._commit(opened)

    def _open(self) -> Facts:
        self._nvml.open()
        calls: list[tuple[str, str, tuple[object, ...]]] = [
            ("driver_version", "nvmlSystemGetDriverVersion", ()),
            ("nvml_version", "nvmlSystemGetNVMLVersion", ()),
        ]
        if _PROCESS_NAME in self._wanted.labels:
            pid = ctypes.c_uint(os.getpid())
            calls.append((_PROCESS_NAME, "nvmlSystemGetProcessName", (pid,)))
        return _facts((name, self._nvml.text(call, *args)) for name, call, args in calls)

    def _read_count(self) -> int:
        code, count = self._nvml.number(_COUNT_SYMBOLS)
        codes.check_driver(code)
        self._count_code = code
        if code:
            self.errors.append(("", code))
            return max(self._count, 0)
        return count

    def _target_name(self, index: int) -> str:
        if index in self.gpus:
            return self.gpus[index].uuid
        if index in self.closed:
            return self.closed[index][0].uuid
        return f"index {index}"

    def _commit(self, opened: Mapping[int, OpenGpu | Device]) -> None:
        """Replace the inventory; an index that cannot be opened keeps its known devices."""
        gpus = {index: found for index, found in opened.items() if isinstance(found, OpenGpu)}
        present_uuids = {gpu.uuid for gpu in gpus.values()}
        closed: dict[int, tuple[Device, ...]] = {}
        for index in range(self._count):
            found = opened.get(index)
            if isinstance(found, OpenGpu):
                continue
            old = self.gpus.get(index)
            known = self.closed.get(index, ()) if old is None else old.devices
            if found is not None and (not known or known[0].uuid != found.uuid):
                old, known = None, (found,)
            if not known or known[0].uuid in present_uuids:
                continue
            if old is None:
                closed[index] = known
            else:
                # Its handle may work again before the GPU can be opened.
                gpus[index] = old
        self._current = (dict(sorted(gpus.items())), closed)

    def _open_gpu(self, index: int) -> OpenGpu | Device | None:
        """Open a GPU, unless it is open, up and unchanged.

        Returns:
            The open GPU; only its device if it is lost; None if its uuid cannot be read.
        """
        nvml = self._nvml
        code, handle = nvml.handle_at(index)
        uuid = ""
        if code == 0:
            code, uuid = nvml.text("nvmlDeviceGetUUID", handle)
        codes.check_driver(code)
        if code or not uuid:
            self.errors.append((self._target_name(index), code))
            self._unopened[index] = code
            return None
        old = self.gpus.get(index)
        if (
            old is not None
            and old.up
            and old.uuid == uuid
            and address(old.handle) == address(handle)
        ):
            # It keeps its state: the fault of another GPU must not interrupt its readings.
            return old
        minor = _value_or(nvml.number("nvmlDeviceGetMinorNumber", handle), None)
        bus_id = _value_or(nvml.pci_bus_id(handle), "")
        model = _value_or(nvml.text("nvmlDeviceGetName", handle), "")
        driver = dict(self._driver).get("driver_version", "")
        target = ReadTarget(nvml, handle, uuid, self._wanted, self._now)
        facts = (*self._driver, *_facts(_board_texts(nvml, handle)), *_number_labels(target))
        device = Device(uuid, index, minor, bus_id, model, driver, None, tuple(sorted(facts)))
        try:
            return OpenGpu(target, device, partial(self._peers, uuid))
        except codes.DeviceLostError as lost:
            self.errors.append((uuid, lost.code))
            self._unopened[index] = lost.code
            return device

    def _peers(self, uuid: str) -> Iterator[tuple[int, Handle]]:
        """Yield index and handle of the other GPUs that are up and that no thread calls then."""
        for index, gpu in self.gpus.items():
            if gpu.uuid != uuid and gpu.is_free_to_call:
                yield index, gpu.handle


def _value_or(answer: tuple[int, T], missing: M) -> T | M:
    code, value = answer
    codes.check_driver(code)
    return value if code == 0 else missing


def _facts(answers: Iterable[tuple[str, tuple[int, str]]]) -> Facts:
    """Return the texts that the driver reported.

    Raises:
        DriverGoneError: the driver is gone.
    """
    found = ((name, _value_or(answer, "").strip()) for name, answer in answers)
    return tuple((name, text) for name, text in found if text)


def _number_labels(target: ReadTarget) -> Facts:
    """Read the numbers of a board that a list requests as labels.

    Raises:
        DriverGoneError: the driver is gone.
    """
    numbers = {number_of(label): label for label in target.wanted.labels if number_of(label)}
    with contextlib.suppress(codes.DeviceLostError):  # the next call reports it
        found = read_plan.constants(target, frozenset(numbers)) if numbers else {}
        return tuple((numbers[field], text) for field, text in found.items())
    return ()


def _board_texts(nvml: Library, handle: Handle) -> Iterator[tuple[str, tuple[int, str]]]:
    """Query the texts about a board: name, and NVML's code with the text.

    Each query takes some microseconds. The checksum of the inforom is not read: it takes 70 ms.
    """
    for name, call in _TEXTS:
        yield name, nvml.text(call, handle)
    for part, name in enumerate(_INFOROM):
        yield name, nvml.text("nvmlDeviceGetInforomVersion", handle, ctypes.c_int(part))
    code, brand = nvml.number("nvmlDeviceGetBrand", handle)
    yield "brand", (code, _BRANDS.get(brand, ""))
