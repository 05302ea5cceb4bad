"""The plan of one handle: which readers there are for it, and which of them answer."""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pipeline.fields import CATALOGUE, FieldPlan, Tier
from pipeline.model import NS, Instant
from sources.nvml import codes, field_values, readers
from sources.nvml import process_list as processes
from sources.nvml.device_filter import EVERYTHING, DeviceFilter
from sources.nvml.gpm import Profiler
from sources.nvml.library import Call, Handle, Library
from sources.nvml.options import Options
from sources.nvml.pcie_counters import PcieCounters, PcieTotals
from sources.nvml.readers import NONE32, NONE64, GpuReadings, Reader
from sources.nvml.sample_statistics import Ring
from sources.nvml.sliding_counts import ClockEvents

GOOD_FOR: Final = 3  # intervals of a reading's tier


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """What is to be read of each device.

    Attributes:
        fields: names of the fields.
        processes: whether processes are listed.
        fast_good_ns: how long a reading of the fast tier is good.
        slow_good_ns: the same of the slow tier.
        window_ns: how far back statistics reach.
        clock_events: where clock events are counted.
        choice: of which devices.
        pcie_totals: where bytes over PCIe are added up.
    """

    fields: frozenset[str]
    processes: bool
    fast_good_ns: int
    slow_good_ns: int
    window_ns: int = 0
    clock_events: ClockEvents | None = None
    choice: DeviceFilter = EVERYTHING
    pcie_totals: PcieTotals | None = None

    @classmethod
    def of(
        cls,
        plan: FieldPlan,
        options: Options,
        clock_events: ClockEvents | None = None,
        pcie_totals: PcieTotals | None = None,
    ) -> "ReadingRequest":
        """Work it out of the fields that somebody asked for and the options."""
        interval_ns = round(options.interval * NS)
        window_ns = round(options.statistics_window * NS)
        return cls(
            frozenset(field.name for field in plan.fields),
            options.processes,
            interval_ns * GOOD_FOR,
            round(options.slow_interval * NS) * GOOD_FOR,
            # Between two scrapes lie so many intervals at times, if they don't divide them.
            -(-window_ns // interval_ns) * interval_ns,
            clock_events,
            DeviceFilter.parse(options.devices),
            pcie_totals,
        )

    def good_ns(self, field: str) -> int:
        """Return how long a reading of the field is good."""
        return self.slow_good_ns if field in _SLOW else self.fast_good_ns

    def target(self, uuid: str, field: str) -> tuple[str, str, int]:
        """Return what a reader of one number needs to know."""
        return (uuid, field, self.good_ns(field))


OF_INSTANCES: Final = frozenset(field.name for field in CATALOGUE if field.mig)
"""Fields that MIG instances have."""

_SLOW: Final = frozenset(field.name for field in CATALOGUE if field.tier in (Tier.SLOW, Tier.ONCE))


@dataclass(frozen=True, slots=True)
class _Number:
    """A field that one call gives as one number."""

    field: str
    call: str
    max_value: int
    arguments: tuple[int, ...] = ()
    is_64_bit: bool = False
    divisor: int = 1
    unknown: int | None = None
    padded: bool = False  # the call gives its sampling period too


# In the order of the catalogue. The limits are far above what any board can do.
_NUMBERS: Final = (
    _Number("sm_clock_mhz", "nvmlDeviceGetClockInfo", 20_000, (1,)),
    _Number("memory_clock_mhz", "nvmlDeviceGetClockInfo", 50_000, (2,)),
    _Number("gpu_temperature_celsius", "nvmlDeviceGetTemperature", 200, (0,)),
    _Number("power_watts", "nvmlDeviceGetPowerUsage", 100_000_000, divisor=1000),
    _Number(
        "power_limit_enforced_watts", "nvmlDeviceGetEnforcedPowerLimit", 100_000_000, divisor=1000
    ),
    _Number("energy_millijoules", "nvmlDeviceGetTotalEnergyConsumption", 1 << 62, is_64_bit=True),
    _Number("pcie_replays", "nvmlDeviceGetPcieReplayCounter", NONE32 - 1),
    _Number("encoder_utilization_percent", "nvmlDeviceGetEncoderUtilization", 100, padded=True),
    _Number("decoder_utilization_percent", "nvmlDeviceGetDecoderUtilization", 100, padded=True),
    _Number("performance_state", "nvmlDeviceGetPerformanceState", 15, unknown=32),
    _Number(
        "ecc_corrected_volatile", "nvmlDeviceGetTotalEccErrors", 1 << 62, (0, 0), is_64_bit=True
    ),
    _Number(
        "ecc_uncorrected_volatile", "nvmlDeviceGetTotalEccErrors", 1 << 62, (1, 0), is_64_bit=True
    ),
    _Number(
        "ecc_corrected_aggregate", "nvmlDeviceGetTotalEccErrors", 1 << 62, (0, 1), is_64_bit=True
    ),
    _Number(
        "ecc_uncorrected_aggregate", "nvmlDeviceGetTotalEccErrors", 1 << 62, (1, 1), is_64_bit=True
    ),
)

_UTILIZATION: Final = ("gpu_utilization_percent", "memory_copy_utilization_percent")
_ENERGY: Final = "energy_millijoules"

FORCED: Final = frozenset({_ENERGY, *_UTILIZATION})
"""Fields that are read at once when a device changes hands."""


class Plan:
    """The readers of one handle.

    A reader whose device lacks the reading is put aside, and tried again when `revive` is called.

    Attributes:
        fast: readers of the fast tier that answer.
        slow: those of the slow tier.
        forced: what is read at once when the device changes hands.
        profiler: that of GPU performance monitoring, which is one of `fast`.
        rings: what the driver samples by itself; each is one of `fast`.
        summed: what is added up from one slow round to the next; one of `slow`.
    """

    def __init__(self, fast: list[Reader], slow: list[Reader]) -> None:
        self.fast = fast
        self.slow = slow
        self.forced: list[Reader] = []
        self.profiler: Profiler | None = None
        self.rings: list[Ring] = []
        self.summed: PcieCounters | None = None
        self._disabled: list[tuple[list[Reader], Reader]] = []

    def run(self, tier: list[Reader], sheet: GpuReadings, at: Instant) -> bool:
        """Call the readers of a tier; whether any answer was that of a working driver.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        alive = False
        lacking: list[Reader] = []
        for reader in tier:
            code = reader(sheet, at)
            if code == 0:
                alive = True
                continue
            alive = alive or code in codes.ALIVE
            if code in codes.UNSUPPORTED:
                lacking.append(reader)
            elif code not in codes.NO_READING:
                codes.check(code)
                sheet.errors.append(code)
        if tier is not self.forced:
            for reader in lacking:
                tier.remove(reader)
                self._disabled.append((tier, reader))
        return alive

    def add(self, profiler: Profiler | None, rings: Iterable[Ring] = ()) -> None:
        """Add readers to the fast tier that go on from what they read before."""
        self.rings += rings
        self.fast += [ring.read for ring in self.rings]
        self.profiler = profiler
        if profiler is not None:
            self.fast.append(profiler.read)

    def add_slow(self, readers: Iterable[Reader], summed: PcieCounters | None) -> None:
        """Add readers to the slow tier, with what is added up."""
        self.slow += readers
        self.summed = summed
        if summed is not None:
            self.slow.append(summed.read)

    def reset(self) -> None:
        """Have them start anew, since the device was away or is not what it was."""
        if self.profiler is not None:
            self.profiler.reset()
        for ring in self.rings:
            ring.reset()
        if self.summed is not None:
            self.summed.forget()

    def revive(self) -> None:
        """Try the readers put aside again: a driver may give today what it lacked yesterday."""
        for tier, reader in self._disabled:
            tier.append(reader)
        self._disabled.clear()


def for_gpu(nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest) -> Plan:
    """Compile the plan of a physical GPU.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    fields = wanted.fields
    fast: list[Reader | None] = []
    slow: list[Reader | None] = []
    single: dict[str, Reader | None] = {}
    for spec in _NUMBERS:
        if spec.field in fields:
            single[spec.field] = _number(nvml, handle, uuid, spec, wanted)
            (slow if spec.field in _SLOW else fast).append(single[spec.field])
    good = wanted.fast_good_ns
    busy: Reader | None = None
    if not fields.isdisjoint(_UTILIZATION):
        names = [name if name in fields else None for name in _UTILIZATION]
        busy = readers.utilization(nvml, handle, uuid, good, names)
        fast.append(busy)
    fast.append(
        field_values.batch(
            nvml,
            handle,
            [
                field_values.FieldValueRequest(
                    known.number, field_values.number(known, (uuid, field, good))
                )
                for field, known in field_values.FAST.items()
                if field in fields
            ],
        )
    )
    if not fields.isdisjoint(readers.CLOCK_FIELDS):
        counted = wanted.clock_events
        fast.append(readers.throttling(nvml, handle, uuid, good, fields, event_counter=counted))
    if not fields.isdisjoint(readers.ROW_FIELDS):
        slow.append(readers.remapped_rows(nvml, handle, uuid, wanted.slow_good_ns, fields))
    fast += _shared(nvml, handle, uuid, wanted, carries=True)
    plan = Plan(_present(fast), _present(slow))
    plan.forced = _present([single.get(_ENERGY), busy])
    return plan


def for_mig(nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest) -> Plan:
    """Compile the plan of a MIG instance."""
    return Plan(_present(_shared(nvml, handle, uuid, wanted, carries=False)), [])


def probe(nvml: Library, handle: Handle) -> Callable[[], int]:
    """Return a call that tells whether a GPU works, for a plan that has no answer of its own."""
    plan = ReadingRequest(frozenset(readers.MEMORY_FIELDS.values()), False, 0, 0)
    read = readers.memory(nvml, handle, "", 0, plan.fields)
    moment = Instant(0, 0)
    sheet = GpuReadings("", moment)

    def ask() -> int:
        sheet.clear()
        return codes.NOT_SUPPORTED if read is None else read(sheet, moment)

    return ask


def _shared(
    nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest, *, carries: bool
) -> list[Reader | None]:
    """Make the readers that a GPU, which may carry MIG instances, and an instance have alike."""
    made: list[Reader | None] = []
    good = wanted.fast_good_ns
    if not wanted.fields.isdisjoint(readers.MEMORY_FIELDS.values()):
        made.append(readers.memory(nvml, handle, uuid, good, wanted.fields))
    if wanted.processes:
        target = (uuid, "processes", good)
        with_count = "processes" in wanted.fields
        made.append(processes.processes(nvml, handle, target, with_count, carries=carries))
    return made


def _number(
    nvml: Library, handle: Handle, uuid: str, spec: _Number, wanted: ReadingRequest
) -> Reader | None:
    box = ctypes.c_ulonglong() if spec.is_64_bit else ctypes.c_uint()
    boxes = [ctypes.byref(box)]
    if spec.padded:
        boxes.append(ctypes.byref(ctypes.c_uint()))
    call: Call | None = nvml.bind(spec.call, handle, *map(ctypes.c_uint, spec.arguments), *boxes)
    if call is None:
        return None
    unknown = spec.unknown if spec.unknown is not None else NONE64 if spec.is_64_bit else NONE32
    return readers.number(
        call,
        box,
        wanted.target(uuid, spec.field),
        most=spec.max_value,
        unknown=unknown,
        divisor=spec.divisor,
    )


def _present(made: Iterable[Reader | None]) -> list[Reader]:
    return [reader for reader in made if reader is not None]
