"""GPU performance monitoring (GPM): how busy the parts of a device were between two visits.

NVML keeps counters in samples that the caller takes, and works out a metric as the average over
the time between two of them. So every visit takes one sample and compares it with that of the visit
before, and the windows follow each other without a gap.
"""

import ctypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pipeline.fields import CATALOGUE
from pipeline.model import NS, Instant, Reading
from sources.nvml import codes, library
from sources.nvml.gpm_buffers import Buffer
from sources.nvml.library import Call, GpmMetric, Handle, Library
from sources.nvml.readers import GpuReadings

MIN_INTERVAL_NS: Final = NS // 10
"""The driver's counters are renewed ten times a second: between samples closer than that it answers
with nonsense."""

MIN_VALIDITY_NS: Final = 6 * MIN_INTERVAL_NS
"""How long readings are good at least: of rounds that come ten times a second every other one is a
little too close, and a late one must not end the series."""

_ENGINE: Final = re.compile(rf"({'|'.join(library.ENGINES)})(\d+)_active_ratio")
_CALL: Final = re.compile(r"nvmlGpmMetricsGet\((\d+)\)")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Metric:
    """How NVML's metric becomes a field's value.

    Attributes:
        number: NVML's id.
        factor: from NVML's unit to the field's.
        max_value: the largest value that can be true, in the field's unit.
        tolerance: by how much a value may lie outside for being rounded; it counts as the limit.
        mig: whether a MIG instance has it.
    """

    number: int
    factor: float
    max_value: float
    tolerance: float
    mig: bool


# The limit of a rate is far above what any board can do.
METRICS: Final[Mapping[str, Metric]] = {
    field.name: Metric(int(found[1]), 0.01, 1.0, 0.001, field.mig)
    if field.unit == "ratio"
    else Metric(int(found[1]), _MIB, 1e14, 0.0, field.mig)
    for field in CATALOGUE
    if (found := _CALL.fullmatch(field.call))
}


class MetricQuery:
    """Some metrics, asked for with one call; GPU or instances that are visited in turn share it."""

    def __init__(self, nvml: Library, names: tuple[str, ...]) -> None:
        self._box, metrics = library.gpm_metrics_box([METRICS[name].number for name in names])
        self._call = nvml.bind("nvmlGpmMetricsGet", ctypes.byref(self._box))
        self._parts: list[tuple[GpmMetric, str, Metric]] = [
            (metric, name, METRICS[name]) for metric, name in zip(metrics, names, strict=True)
        ]

    def compare(
        self,
        older: Buffer,
        newer: Buffer,
        sheet: GpuReadings,
        make: Callable[[str, float], Reading],
    ) -> int:
        """Append what happened between two samples; return NVML's code.

        A metric that fails costs only itself. NOT_SUPPORTED means that the device has none of them.
        """
        if self._call is None:
            return codes.FUNCTION_NOT_FOUND
        box = self._box
        box.sample1, box.sample2 = older.box, newer.box
        for metric, _, _ in self._parts:
            metric.nvmlReturn = codes.NOT_SUPPORTED
        code = self._call()
        if code:
            return code
        has_some = False
        for metric, name, known in self._parts:
            code = metric.nvmlReturn
            has_some |= code not in codes.UNSUPPORTED
            if code == codes.OK:
                value = metric.value * known.factor
                if -known.tolerance <= value <= known.max_value + known.tolerance:
                    sheet.append(make(name, min(max(value, 0.0), known.max_value)))
                else:
                    sheet.errors.append(codes.OUT_OF_RANGE)
            elif code not in codes.NO_READING:
                codes.check(code)
                sheet.errors.append(code)
        return codes.OK if has_some else codes.NOT_SUPPORTED


@dataclass(slots=True)
class _Sample:
    """A buffer, the call that takes a sample into it, and when that last began and ended."""

    buffer: Buffer
    take: Call
    at: Instant
    ended: Instant


class Profiler:
    """Visits one device: the samples of the last two visits, and what lies between.

    Args:
        nvml: the library.
        take: binds the call that takes a sample to a buffer.
        question: the metrics.
        target: uuid of the device, and how long its readings are good.
        now: the clock.
    """

    def __init__(
        self,
        nvml: Library,
        take: Callable[[Any], Call],
        question: MetricQuery,
        target: tuple[str, int],
        now: Callable[[], Instant],
    ) -> None:
        self._buffers = nvml.buffers
        self._take = take
        self._question = question
        self._target = target
        self._now = now
        self._previous: _Sample | None = None
        self._spare: list[_Sample] = []
        self._shared = False

    def read(self, sheet: GpuReadings, _at: Instant) -> int:
        """Take a sample and compare it with the one before. A `Reader`."""
        if self._shared:
            return codes.UNASKED
        self._buffers.tidy()
        older, at = self._previous, self._now()
        if older is not None and at.mono_ns - older.ended.mono_ns < MIN_INTERVAL_NS:
            return codes.UNASKED
        while older is None and len(self._spare) < 2:
            code, buffer = self._buffers.new()
            if buffer is None:
                return code
            self._spare.append(_Sample(buffer, self._take(buffer.box), at, at))
        newer = self._spare[-1]
        newer.at = at
        code = newer.take()
        newer.ended = self._now()
        if code:
            if code in codes.UNSUPPORTED:
                self.reset()
            return code
        self._previous = self._spare.pop()
        if older is None:
            return codes.OK
        self._spare.append(older)
        uuid, good = self._target
        start = older.at
        return self._question.compare(
            older.buffer,
            newer.buffer,
            sheet,
            lambda field, value: Reading(uuid, field, (), value, start, at, good),
        )

    def reset(self) -> None:
        """Start anew: what was counted so far is not to be compared with what comes."""
        self._previous = None
        self._spare.clear()

    def set_shared(self, *, shared: bool) -> None:
        """Tell whether others have a part in what is counted; then it says nothing of this one."""
        if shared:
            self.reset()
        self._shared = shared


class Profiling:
    """GPM of one GPU and its MIG instances.

    Args:
        nvml: the library.
        handle: of the GPU.
        fields: names of the fields that somebody asked for.
        good: how long readings are good.
        now: the clock.

    Raises:
        DeviceLostError: the device is gone.
        DriverGoneError: the driver is gone.
    """

    def __init__(
        self,
        nvml: Library,
        handle: Handle,
        fields: frozenset[str],
        good: int,
        now: Callable[[], Instant],
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._good = good
        self._now = now
        names = tuple(name for name in METRICS if name in fields)
        if names and not self._supported():
            names = ()
        names = self._there(names)
        self._own = MetricQuery(nvml, names) if names else None
        names = tuple(name for name in names if METRICS[name].mig)
        self._instances = MetricQuery(nvml, names) if names else None

    def _supported(self) -> bool:
        """Ask once. A driver that can't say is asked for samples, and answers then."""
        box = library.gpm_support_box()
        code = self._nvml.ask("nvmlGpmQueryDeviceSupport", self._handle, ctypes.byref(box))
        codes.check(code)
        return bool(box.isSupportedDevice) if code == 0 else code not in codes.UNSUPPORTED

    def _there(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Leave out engines that the GPU doesn't have: of those NVML says that they are idle."""
        engines = {name: found for name in names if (found := _ENGINE.fullmatch(name))}
        has = self._nvml.engines(self._handle) if engines else None
        if has is None:
            return names
        return tuple(
            name
            for name in names
            if name not in engines or int(engines[name][2]) < has[engines[name][1]]
        )

    def gpu(self, uuid: str) -> Profiler | None:
        """Make the profiler of the GPU itself; None if there is nothing to read."""
        return self._profiler(self._own, uuid, "nvmlGpmSampleGet", self._handle)

    def instance(self, uuid: str, gpu_instance: int) -> Profiler | None:
        """Make the profiler of the MIG device on a GPU instance; None if there is nothing to read.

        NVML counts by GPU instance and knows no compute instances.
        """
        number = ctypes.c_uint(gpu_instance)
        return self._profiler(self._instances, uuid, "nvmlGpmMigSampleGet", self._handle, number)

    def _profiler(
        self, question: MetricQuery | None, uuid: str, call: str, *args: object
    ) -> Profiler | None:
        function = self._nvml.function(call)
        if question is None or function is None:
            return None
        keep = function

        def take(box: Any) -> Call:
            return partial(keep, *args, box)

        return Profiler(self._nvml, take, question, (uuid, self._good), self._now)
