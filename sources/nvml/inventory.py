"""Which GPUs there are."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from pipeline.model import Device, Instant
from sources.nvml import board_facts, codes
from sources.nvml.gpu import Gpu
from sources.nvml.library import Library, same
from sources.nvml.read_plan import ReadingRequest
from sources.nvml.worker_pool import NO_TARGET, Job, Step

INIT: Final = "nvmlInit"
COUNT: Final = "nvmlDeviceGetCount"

_Open: TypeAlias = dict[int, Gpu]
_Closed: TypeAlias = dict[int, tuple[Device, ...]]

T = TypeVar("T")
M = TypeVar("M")

_COUNT_SYMBOLS: Final = ("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")


class Inventory:
    """The GPUs of one initialisation of NVML, by index.

    Touched by the sampling thread alone while it runs, apart from what may be read from the event
    loop at any time: both dictionaries are exchanged as one, and never changed.

    Args:
        nvml: the library.
        wanted: what is to be read.
        now: the clock.
        remembered: devices of an earlier run by index, for a GPU that can't be opened at once.

    Attributes:
        errors: what went wrong since it was last looked at: a GPU's name, and NVML's code.
    """

    def __init__(
        self,
        nvml: Library,
        wanted: ReadingRequest,
        now: Callable[[], Instant],
        remembered: Mapping[int, tuple[Device, ...]] = MappingProxyType({}),
    ) -> None:
        self._nvml = nvml
        self._wanted = wanted
        self._now = now
        self._driver: board_facts.Facts = ()
        self._count = -1
        self._groups: list[tuple[Device, ...]] = []
        self._devices: tuple[Device, ...] = ()
        self._now_open: tuple[_Open, _Closed] = ({}, dict(remembered))
        self.errors: list[tuple[str, int]] = []
        self._found: dict[int, Gpu | Device] = {}
        self._count_code = codes.OK
        self._unopened: dict[int, int] = {}

    @property
    def gpus(self) -> _Open:
        """The GPUs that were opened; the same object until they are looked for anew."""
        return self._now_open[0]

    @property
    def closed(self) -> _Closed:
        """The devices of indexes that can't be opened now, as far as they are known."""
        return self._now_open[1]

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in their order; the same tuple while nothing changes."""
        gpus, closed = self._now_open
        groups = [*(gpu.devices for gpu in gpus.values()), *closed.values()]
        if groups != self._groups:
            self._groups = groups
            found = [device for group in groups for device in group]
            self._devices = tuple(sorted(found, key=lambda device: device.order))
        return self._devices

    @property
    def by_index(self) -> dict[int, tuple[Device, ...]]:
        """The devices of each index."""
        gpus, closed = self._now_open
        return {**closed, **{index: gpu.devices for index, gpu in gpus.items()}}

    def contradiction(self) -> str:
        """Say why the devices asked for can't be had; empty if they can, or nobody can tell."""
        gpus = self.gpus
        modes = {gpu.mig_mode for gpu in gpus.values()}
        known = len(gpus) == self._count and None not in modes
        any_mig = True in modes if known else None
        numbers = (number for gpu in gpus.values() for number in gpu.numbers.values())
        return self._wanted.choice.conflict_with_node(self._count, numbers, any_mig=any_mig)

    @property
    def has_failures(self) -> bool:
        """Whether some GPU is down or could not be opened: opening it anew may help."""
        return len(self.gpus) < self._count or not all(gpu.up for gpu in self.gpus.values())

    @property
    def count_unknown(self) -> bool:
        """Whether the driver answers "unknown" when it is asked how many GPUs there are."""
        return self._count_code == codes.UNKNOWN

    @property
    def all_unknown(self) -> bool:
        """Whether all GPUs that are read answer nothing but "unknown".

        The driver answers so where the devices were taken from this process. One GPU that is lost,
        or that answers anything else, is a fault of its own.
        """
        gpus = self.gpus
        faults = [gpu.fault_code for gpu in gpus.values() if gpu.is_read]
        faults += [code for index, code in self._unopened.items() if index not in gpus]
        if not all(gpu.is_read for gpu in gpus.values()):
            # Nobody has asked the others.
            faults.append(self._count_code)
        return all(code == codes.UNKNOWN for code in faults or [self._count_code])

    def find(self, uuids: Iterable[str]) -> list[Gpu]:
        """Return the GPUs that are, or carry, these devices."""
        wanted = frozenset(uuids)
        return [
            gpu
            for gpu in self.gpus.values()
            if any(device.uuid in wanted for device in gpu.devices)
        ]

    def open_steps(self) -> list[Step]:
        """Return the steps that initialise NVML and learn the driver's version."""
        return [Step(INIT, self._open, self._set_driver, is_critical=True)]

    def _open(self) -> board_facts.Facts:
        self._nvml.open()
        return board_facts.of_driver(self._nvml)

    def _set_driver(self, known: board_facts.Facts) -> None:
        self._driver = known

    def count_steps(self, job: Job, *, rescan: bool, vital: bool = False) -> list[Step]:
        """Return the step that counts the GPUs; it adds to the job what a new count asks for."""

        def accept(count: int) -> None:
            if count != self._count or rescan:
                self._count = count
                job.steps.extendleft(reversed(self._scan_steps(count)))

        return [Step(COUNT, self._ask_count, accept, is_critical=vital)]

    def _ask_count(self) -> int:
        code, count = self._nvml.number(_COUNT_SYMBOLS)
        codes.check_driver(code)
        self._count_code = code
        if code:
            self.errors.append(("", code))
            return max(self._count, 0)
        return count

    def _scan_steps(self, count: int) -> list[Step]:
        self._found, self._unopened = {}, {}
        steps = [
            Step(
                self._target_name(index),
                partial(self._open_gpu, index),
                partial(self._record_opened, index),
            )
            for index in range(count)
        ]
        return [*steps, Step(NO_TARGET, partial(self._commit, count))]

    def _target_name(self, index: int) -> str:
        if index in self.gpus:
            return self.gpus[index].uuid
        if index in self.closed:
            return self.closed[index][0].uuid
        return f"index {index}"

    def _record_opened(self, index: int, found: Gpu | Device | None) -> None:
        if found is not None:
            self._found[index] = found

    def _commit(self, count: int) -> None:
        """Take over what was found; an index that can't be opened keeps what was known of it."""
        gpus = {index: found for index, found in self._found.items() if isinstance(found, Gpu)}
        taken = {gpu.uuid for gpu in gpus.values()}
        closed: dict[int, tuple[Device, ...]] = {}
        for index in range(count):
            found = self._found.get(index)
            if isinstance(found, Gpu):
                continue
            old = self.gpus.get(index)
            known = self.closed.get(index, ()) if old is None else old.devices
            if found is not None and (not known or known[0].uuid != found.uuid):
                old, known = None, (found,)
            if not known or known[0].uuid in taken:
                continue
            if old is None:
                closed[index] = known
            else:
                # Its handle may work again before it can be opened anew.
                gpus[index] = old
        self._now_open = (dict(sorted(gpus.items())), closed)

    def _open_gpu(self, index: int) -> Gpu | Device | None:
        """Open a GPU; only its device if it is lost, None if not even its uuid can be had."""
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
        if old is not None and old.up and old.uuid == uuid and same(old.handle, handle):
            # It goes on from what it has read: another GPU's trouble costs it nothing.
            return old
        minor = _value(nvml.number("nvmlDeviceGetMinorNumber", handle), None)
        bus_id = _value(nvml.pci_bus_id(handle), "")
        model = _value(nvml.text("nvmlDeviceGetName", handle), "")
        driver = dict(self._driver).get("driver_version", "")
        known = tuple(sorted((*self._driver, *board_facts.of_board(nvml, handle))))
        device = Device(uuid, index, minor, bus_id, model, driver, None, known)
        try:
            return Gpu(nvml, handle, device, self._wanted, self._now, peers=lambda: self.gpus)
        except codes.DeviceLostError as lost:
            self.errors.append((uuid, lost.code))
            self._unopened[index] = lost.code
            return device


def _value(answer: tuple[int, T], missing: M) -> T | M:
    """Return what was answered, or what stands for no answer."""
    code, value = answer
    codes.check_driver(code)
    return value if code == 0 else missing
