"""The read plan of one device: its readers, and which of them the device supports."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pipeline.fields import CATALOGUE, Tier
from pipeline.fields.memory_fields import PLACES, located_ecc
from pipeline.model import Instant
from sources.nvml import codes, composite_readers, device_readers, nvlink_readers
from sources.nvml.composite_readers import FieldValueRequest, FieldValueSpec, batch
from sources.nvml.counters import ENERGY, Energy, PcieCounters
from sources.nvml.gpm import Profiler
from sources.nvml.nvlink_readers import Peers
from sources.nvml.process_list import processes
from sources.nvml.process_utilization import Utilization
from sources.nvml.reader_parts import (
    COUNT,
    MILLIWATTS,
    NONE32,
    SLOW,
    GpuReadings,
    Reader,
    ReadingRequest,
    ReadTarget,
    reader,
)
from sources.nvml.sample_statistics import Ring

OF_INSTANCES: Final = frozenset(field.name for field in CATALOGUE if field.mig)
"""Fields that MIG instances have."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A field that one call returns as one number."""

    field: str
    call: str
    max_value: int
    arguments: tuple[int, ...] = ()
    divisor: int = 1
    unknown: int | None = None
    padded: bool = False  # the call also returns a second number: its sampling period, a default
    system: bool = False  # the number is the same for all GPUs, so the call takes no GPU


_ECC: Final = "nvmlDeviceGetTotalEccErrors"
_LIMIT: Final = "nvmlDeviceGetTemperatureThreshold"
_MAX_CLOCK: Final = "nvmlDeviceGetMaxClockInfo"
_APPLICATION_CLOCK: Final = "nvmlDeviceGetApplicationsClock"
_CELSIUS: Final = 250

_ONCE: Final = frozenset(field.name for field in CATALOGUE if field.tier is Tier.ONCE)

# In the order of the catalogue. The limits are far above the values of any GPU.
_NUMBERS: Final = (
    _Number("sm_clock_mhz", "nvmlDeviceGetClockInfo", 20_000, (1,)),
    _Number("memory_clock_mhz", "nvmlDeviceGetClockInfo", 50_000, (2,)),
    _Number("gpu_temperature_celsius", "nvmlDeviceGetTemperature", 200, (0,)),
    _Number("power_watts", "nvmlDeviceGetPowerUsage", MILLIWATTS, divisor=1000),
    _Number(
        "power_limit_enforced_watts", "nvmlDeviceGetEnforcedPowerLimit", MILLIWATTS, divisor=1000
    ),
    _Number("energy_millijoules", "nvmlDeviceGetTotalEnergyConsumption", COUNT),
    _Number("pcie_replays", "nvmlDeviceGetPcieReplayCounter", NONE32 - 1),
    _Number("encoder_utilization_percent", "nvmlDeviceGetEncoderUtilization", 100, padded=True),
    _Number("decoder_utilization_percent", "nvmlDeviceGetDecoderUtilization", 100, padded=True),
    _Number("performance_state", "nvmlDeviceGetPerformanceState", 15, unknown=32),
    _Number("ecc_corrected_volatile", _ECC, COUNT, (0, 0)),
    _Number("ecc_uncorrected_volatile", _ECC, COUNT, (1, 0)),
    _Number("ecc_corrected_aggregate", _ECC, COUNT, (0, 1)),
    _Number("ecc_uncorrected_aggregate", _ECC, COUNT, (1, 1)),
    _Number("temperature_shutdown_celsius", _LIMIT, _CELSIUS, (0,)),
    _Number("temperature_slowdown_celsius", _LIMIT, _CELSIUS, (1,)),
    _Number("temperature_memory_max_operating_celsius", _LIMIT, _CELSIUS, (2,)),
    _Number("temperature_gpu_max_operating_celsius", _LIMIT, _CELSIUS, (3,)),
    _Number("video_clock_mhz", "nvmlDeviceGetClockInfo", 20_000, (3,)),
    _Number("application_sm_clock_mhz", _APPLICATION_CLOCK, 20_000, (0,)),
    _Number("application_memory_clock_mhz", _APPLICATION_CLOCK, 50_000, (2,)),
    _Number("max_sm_clock_mhz", _MAX_CLOCK, 20_000, (1,)),
    _Number("max_memory_clock_mhz", _MAX_CLOCK, 50_000, (2,)),
    _Number("max_video_clock_mhz", _MAX_CLOCK, 20_000, (3,)),
    *(
        _Number(
            located_ecc(kind, span, place),
            "nvmlDeviceGetMemoryErrorCounter",
            COUNT,
            (kind, span, place),
        )
        for kind in (0, 1)
        for span in (0, 1)
        for place in range(PLACES)
    ),
    _Number("pcie_link_gen", "nvmlDeviceGetCurrPcieLinkGeneration", 20),
    _Number("pcie_link_width", "nvmlDeviceGetCurrPcieLinkWidth", 64),
    _Number("pcie_max_link_gen", "nvmlDeviceGetMaxPcieLinkGeneration", 20),
    _Number("pcie_max_link_width", "nvmlDeviceGetMaxPcieLinkWidth", 64),
    _Number("node_gpus", "nvmlDeviceGetCount_v2", NONE32 - 1, system=True),
    _Number("cuda_driver_version", "nvmlSystemGetCudaDriverVersion_v2", 1_000_000, system=True),
    _Number("nvml_index", "nvmlDeviceGetIndex", NONE32 - 1),
    _Number("minor_number", "nvmlDeviceGetMinorNumber", NONE32 - 1),
    _Number("persistence_mode", "nvmlDeviceGetPersistenceMode", 1),
    _Number("mig_max_slices", "nvmlDeviceGetMaxMigDeviceCount", 64),
    _Number("virtualization_mode", "nvmlDeviceGetVirtualizationMode", 15),
    _Number("autoboost_mode", "nvmlDeviceGetAutoBoostedClocksEnabled", 1, padded=True),
    _Number("inforom_checksum", "nvmlDeviceGetInforomConfigurationChecksum", NONE32 - 1),
)

_POWER_LIMIT: Final = _Number(
    "power_limit_watts", "nvmlDeviceGetPowerManagementLimit", MILLIWATTS, divisor=1000
)

FORCED: Final = frozenset({ENERGY, *composite_readers.UTILIZATION})
"""Fields that are read immediately when the holders of a device change."""

Stateful: TypeAlias = Profiler | Ring | PcieCounters | Energy | Utilization
"""A reader, as a method, that continues from its last call until `reset` is called."""


class Plan:
    """The readers of one device.

    A reader of the fast or the slow tier is disabled if the device or the driver does not support
    it, until `revive` is called.

    Attributes:
        fast: enabled readers of the fast tier.
        slow: enabled readers of the slow tier.
        forced: readers that run immediately when the holders of the device change.
        stateful: readers that keep state between rounds.
    """

    def __init__(self, fast: list[Reader]) -> None:
        self.fast = fast
        self.slow: list[Reader] = []
        self.forced: list[Reader] = []
        self.stateful: list[Stateful] = []
        self._disabled: list[tuple[list[Reader], Reader]] = []

    def run(self, tier: list[Reader], result: GpuReadings, at: Instant) -> bool:
        """Call the readers of a tier; return whether a returned code shows that the driver works.

        Raises:
            DeviceLostError: the device is gone.
            DriverGoneError: the driver is gone.
        """
        alive = False
        for read in tuple(tier):
            code = read(result, at)
            alive = alive or code in codes.ALIVE
            if code in codes.UNSUPPORTED:
                if tier is not self.forced:
                    tier.remove(read)
                    self._disabled.append((tier, read))
            elif code and code not in codes.NO_READING:
                codes.check(code)
                result.errors.append(code)
        return alive

    def add(self, tier: list[Reader], *added: Stateful | None) -> None:
        """Add readers that keep state between rounds to a tier."""
        for one in added:
            if one is not None:
                tier.append(one.read)
                self.stateful.append(one)

    @property
    def rings(self) -> list[Ring]:
        """The readers of the driver's own samples."""
        return [one for one in self.stateful if isinstance(one, Ring)]

    def set_shared(self, *, shared: bool) -> None:
        """Set whether other instances share the counters of the device."""
        for one in self.stateful:
            if isinstance(one, Profiler):
                one.set_shared(shared=shared)

    def reset(self) -> None:
        """Reset the readers that keep state: the device was down or has changed."""
        for one in self.stateful:
            one.reset()

    def revive(self) -> None:
        """Enable the disabled readers again: the device may support them now."""
        for tier, read in self._disabled:
            tier.append(read)
        self._disabled.clear()


def for_gpu(target: ReadTarget, peers: Peers) -> Plan:
    """Create the read plan of a physical GPU.

    Args:
        target: the GPU.
        peers: returns the other GPUs that can be called now.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    plan = Plan([])
    for spec in _NUMBERS:
        if target.wants(spec.field):
            number = _number(target, spec)
            if spec.field in _ONCE:
                number = device_readers.read_once(number)
            (plan.slow if spec.field in SLOW else plan.fast).append(number)
            if spec.field == ENERGY:
                plan.forced.append(number)
    if target.wants(*composite_readers.UTILIZATION):
        utilization = composite_readers.utilization(target)
        plan.fast.append(utilization)
        plan.forced.append(utilization)
    plan.fast += _batch(target, _values(target, composite_readers.FAST))
    if target.wants(*composite_readers.CLOCK_FIELDS):
        plan.fast.append(composite_readers.throttling(target))
    plan.fast += shared(target, carries=True)
    if target.wants(*composite_readers.ROW_LIMITS):
        plan.slow.append(composite_readers.remapped_rows(target))
    plan.slow += _batch(target, _slow_values(target))
    plan.slow += [make(target, field) for field, make in _SINGLE.items() if target.wants(field)]
    plan.slow += device_readers.structs(target)
    for field, of_peers in _OF_PEERS.items():
        if target.wants(field):
            plan.slow.append(of_peers(target, field, peers))
    return plan


def constants(target: ReadTarget, fields: frozenset[str]) -> dict[str, str]:
    """Read constants of a GPU once, as texts by field.

    Args:
        target: the GPU; what it requests is ignored.
        fields: names of the fields; only those of the tier `once` are read.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """
    plan = for_gpu(replace(target, wanted=ReadingRequest(fields & _ONCE)), lambda: ())
    result = GpuReadings(target.uuid, target.now())
    plan.run(plan.slow, result, result.at)
    return {reading.field: str(reading.value) for reading in result}


_SINGLE: Final[dict[str, Callable[[ReadTarget, str], Reader]]] = {
    "fan_speed_percent": composite_readers.fans,
    "vgpu_license_status": composite_readers.licence,
    "nvlink_up": nvlink_readers.states,
    "cuda_compute_capability": device_readers.compute_capability,
    "compute_mode": device_readers.compute_mode,
    "mig_mode": device_readers.mig_mode,
    "gpm_supported": device_readers.gpm_support,
    "inforom_valid": device_readers.inforom_valid,
}

_OF_PEERS: Final[dict[str, Callable[[ReadTarget, str, Peers], Reader]]] = {
    "p2p_status": nvlink_readers.peer_status,
    "nvlink_p2p_reachable": nvlink_readers.reachable_peers,
}


def shared(target: ReadTarget, *, carries: bool) -> list[Reader]:
    """Create the readers that GPUs and MIG instances have: of memory and of processes."""
    found: list[Reader] = []
    if target.wants(*composite_readers.MEMORY_FIELDS.values(), composite_readers.MEMORY_RATIO):
        found.append(composite_readers.memory(target))
    found += device_readers.bar1(target)
    if target.wanted.processes:
        found.append(processes(target, carries=carries))
    return found


def _number(target: ReadTarget, spec: _Number) -> Reader:
    box = ctypes.c_ulonglong() if spec.max_value > NONE32 else ctypes.c_uint()
    boxes = [ctypes.byref(box)]
    if spec.padded:
        boxes.append(ctypes.byref(ctypes.c_uint()))
    bind = target.nvml.bind if spec.system else target.bind
    call = bind(spec.call, *map(ctypes.c_uint, spec.arguments), *boxes)
    output = target.output(spec.field, spec.max_value, spec.divisor)
    if spec.unknown is not None:
        output = replace(output, unknown=(spec.unknown,))
    return reader(call, (box, "value", output))


def _batch(target: ReadTarget, requests: Iterator[FieldValueRequest]) -> list[Reader]:
    items = list(requests)
    return [batch(target, items)] if items else []


def _values(target: ReadTarget, specs: dict[str, FieldValueSpec]) -> Iterator[FieldValueRequest]:
    for field, spec in specs.items():
        if target.wants(field):
            output, fallback = target.output(field, spec.max_value, spec.divisor), None
            if field == "power_limit_watts":
                # For drivers that lack its field value.
                fallback = _number(target, _POWER_LIMIT)
            yield FieldValueRequest(spec.number, output.add, 0, fallback)


def _slow_values(target: ReadTarget) -> Iterator[FieldValueRequest]:
    """Yield the requests of the field values of the slow tier, which one call reads."""
    yield from _values(target, composite_readers.SLOW)
    yield from nvlink_readers.traffic(target)
    yield from nvlink_readers.errors(target)
    yield from device_readers.field_values(target)
