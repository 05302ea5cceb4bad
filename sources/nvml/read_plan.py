"""The read plan of one handle: its readers, and which of them the device supports."""

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

VALIDITY_INTERVALS: Final = 3  # intervals of a reading's tier for which it is valid


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """What to read of each device.

    Attributes:
        fields: names of the fields.
        processes: whether processes are listed.
        fast_valid_ns: how long a reading of the fast tier is valid.
        slow_valid_ns: how long a reading of the slow tier is valid.
        window_ns: the window of statistics.
        clock_events: counts clock events.
        choice: which devices are read.
        pcie_totals: holds the totals of bytes over PCIe.
    """

    fields: frozenset[str]
    processes: bool
    fast_valid_ns: int
    slow_valid_ns: int
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
        """Create the request from the requested fields and the options."""
        interval_ns = round(options.interval * NS)
        window_ns = round(options.statistics_window * NS)
        return cls(
            frozenset(field.name for field in plan.fields),
            options.processes,
            interval_ns * VALIDITY_INTERVALS,
            round(options.slow_interval * NS) * VALIDITY_INTERVALS,
            # Rounded up: a scrape interval that is no multiple may contain one interval more.
            -(-window_ns // interval_ns) * interval_ns,
            clock_events,
            DeviceFilter.parse(options.devices),
            pcie_totals,
        )

    def valid_ns(self, field: str) -> int:
        """Return how long a reading of the field is valid."""
        return self.slow_valid_ns if field in _SLOW else self.fast_valid_ns

    def target(self, uuid: str, field: str) -> tuple[str, str, int]:
        """Return uuid, field and validity, as a reader of one number takes them."""
        return (uuid, field, self.valid_ns(field))


OF_INSTANCES: Final = frozenset(field.name for field in CATALOGUE if field.mig)
"""Fields that MIG instances have."""

_SLOW: Final = frozenset(field.name for field in CATALOGUE if field.tier in (Tier.SLOW, Tier.ONCE))


@dataclass(frozen=True, slots=True)
class _Number:
    """A field that one call returns as one number."""

    field: str
    call: str
    max_value: int
    arguments: tuple[int, ...] = ()
    is_64_bit: bool = False
    divisor: int = 1
    unknown: int | None = None
    padded: bool = False  # the call also returns its sampling period


# In the order of the catalogue. The limits are far above the values of any GPU.
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
"""Fields that are read immediately when a device gets another holder."""


class Plan:
    """The readers of one handle.

    A reader whose device lacks the reading is disabled until `revive` is called.

    Attributes:
        fast: enabled readers of the fast tier.
        slow: enabled readers of the slow tier.
        forced: readers that run immediately when the device gets another holder.
        profiler: the reader of GPU performance monitoring; its `read` is in `fast`.
        rings: readers of samples that the driver takes; their `read` is in `fast`.
        summed: the reader that adds up bytes over PCIe; its `read` is in `slow`.
    """

    def __init__(self, fast: list[Reader], slow: list[Reader]) -> None:
        self.fast = fast
        self.slow = slow
        self.forced: list[Reader] = []
        self.profiler: Profiler | None = None
        self.rings: list[Ring] = []
        self.summed: PcieCounters | None = None
        self._disabled: list[tuple[list[Reader], Reader]] = []

    def run(self, tier: list[Reader], result: GpuReadings, at: Instant) -> bool:
        """Call the readers of a tier; return whether a working driver returned any code.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        alive = False
        lacking: list[Reader] = []
        for reader in tier:
            code = reader(result, at)
            if code == 0:
                alive = True
                continue
            alive = alive or code in codes.ALIVE
            if code in codes.UNSUPPORTED:
                lacking.append(reader)
            elif code not in codes.NO_READING:
                codes.check(code)
                result.errors.append(code)
        if tier is not self.forced:
            for reader in lacking:
                tier.remove(reader)
                self._disabled.append((tier, reader))
        return alive

    def add(self, profiler: Profiler | None, rings: Iterable[Ring] = ()) -> None:
        """Add readers to the fast tier that keep state between rounds."""
        self.rings += rings
        self.fast += [ring.read for ring in self.rings]
        self.profiler = profiler
        if profiler is not None:
            self.fast.append(profiler.read)

    def add_slow(self, readers: Iterable[Reader], summed: PcieCounters | None) -> None:
        """Add readers to the slow tier, among them the one that adds up bytes."""
        self.slow += readers
        self.summed = summed
        if summed is not None:
            self.slow.append(summed.read)

    def reset(self) -> None:
        """Reset readers with state: the device was away or has changed."""
        if self.profiler is not None:
            self.profiler.reset()
        for ring in self.rings:
            ring.reset()
        if self.summed is not None:
            self.summed.forget()

    def revive(self) -> None:
        """Enable the disabled readers again: the driver may support them now."""
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
    valid_ns = wanted.fast_valid_ns
    utilization: Reader | None = None
    if not fields.isdisjoint(_UTILIZATION):
        names = [name if name in fields else None for name in _UTILIZATION]
        utilization = readers.utilization(nvml, handle, uuid, valid_ns, names)
        fast.append(utilization)
    fast.append(
        field_values.batch(
            nvml,
            handle,
            [
                field_values.FieldValueRequest(
                    field_value.number, field_values.number(field_value, (uuid, field, valid_ns))
                )
                for field, field_value in field_values.FAST.items()
                if field in fields
            ],
        )
    )
    if not fields.isdisjoint(readers.CLOCK_FIELDS):
        event_counter = wanted.clock_events
        fast.append(
            readers.throttling(nvml, handle, uuid, valid_ns, fields, event_counter=event_counter)
        )
    if not fields.isdisjoint(readers.ROW_FIELDS):
        slow.append(readers.remapped_rows(nvml, handle, uuid, wanted.slow_valid_ns, fields))
    fast += _shared(nvml, handle, uuid, wanted, carries=True)
    plan = Plan(_present(fast), _present(slow))
    plan.forced = _present([single.get(_ENERGY), utilization])
    return plan


def for_mig(nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest) -> Plan:
    """Compile the plan of a MIG instance."""
    return Plan(_present(_shared(nvml, handle, uuid, wanted, carries=False)), [])


def probe(nvml: Library, handle: Handle) -> Callable[[], int]:
    """Return a call that checks whether a GPU works, for a plan that got no answer."""
    plan = ReadingRequest(frozenset(readers.MEMORY_FIELDS.values()), False, 0, 0)
    read = readers.memory(nvml, handle, "", 0, plan.fields)
    moment = Instant(0, 0)
    result = GpuReadings("", moment)

    def call_once() -> int:
        result.clear()
        return codes.NOT_SUPPORTED if read is None else read(result, moment)

    return call_once


def _shared(
    nvml: Library, handle: Handle, uuid: str, wanted: ReadingRequest, *, carries: bool
) -> list[Reader | None]:
    """Create the readers that GPUs and MIG instances share."""
    shared: list[Reader | None] = []
    valid_ns = wanted.fast_valid_ns
    if not wanted.fields.isdisjoint(readers.MEMORY_FIELDS.values()):
        shared.append(readers.memory(nvml, handle, uuid, valid_ns, wanted.fields))
    if wanted.processes:
        target = (uuid, "processes", valid_ns)
        with_count = "processes" in wanted.fields
        shared.append(processes.processes(nvml, handle, target, with_count, carries=carries))
    return shared


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
        max_value=spec.max_value,
        unknown=unknown,
        divisor=spec.divisor,
    )


def _present(shared: Iterable[Reader | None]) -> list[Reader]:
    return [reader for reader in shared if reader is not None]
